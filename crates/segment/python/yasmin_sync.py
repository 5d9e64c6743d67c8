"""Locks and a heap in a segment, for processes that may die: yasmin_sync(3) for Python.

    import yasmin_segment, yasmin_sync
    with yasmin_segment.open("table", write=True) as table:
        with yasmin_sync.Member(table, at=0, slots=64) as member:
            with yasmin_sync.Mutex(member, at=4096) as held:
                if held.owner_died:
                    ...                  # make the data whole, then
                    held.consistent()

Everything lies in the segment, at an offset that all processes agree on, zeroed at first. A lock
that a dead process held goes to the next one, who is told. Errors are OSErrors with a sentence.
"""

import ctypes
import errno
import os
import time

import yasmin_segment

__all__ = ["Member", "Mutex", "RWLock", "Semaphore", "Condition", "Barrier", "Once", "Sequence", "Heap"]

SLOT_BYTES = 64
SIZES = {"Mutex": 32, "RWLock": 256, "Sequence": 32, "Once": 32, "Semaphore": 16, "Condition": 16, "Barrier": 256}
PLAIN, ERROR_CHECKING, RECURSIVE = 0, 1, 2

_POINTER, _INT, _NUMBER = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


_U64 = ctypes.POINTER(ctypes.c_uint64)
_UNTIL = ctypes.POINTER(_Timespec)


def _declare(name, result, *arguments):
    function = getattr(yasmin_segment._library, "yasmin_" + name)
    function.restype, function.argtypes = result, arguments
    return function


def _all(prefix, names, *arguments):
    return {name: _declare(prefix + name, _INT, _POINTER, _POINTER, *arguments) for name in names}


_join = _declare("member_join", _POINTER, _POINTER, _POINTER, _NUMBER)
_renew = _declare("member_renew", _INT, _POINTER)
_leave = _declare("member_leave", None, _POINTER)
_number = _declare("member_number", ctypes.c_uint32, _POINTER)
_mutex = (
    _all("mutex_", ["lock", "trylock"], _U64)
    | _all("mutex_", ["timedlock"], _UNTIL, _U64)
    | _all("mutex_", ["unlock", "consistent"])
)
_mutex_init = _declare("mutex_init", _INT, _POINTER, _NUMBER)
_rwlock = (
    _all("rwlock_", ["rdlock", "tryrdlock", "wrlock", "trywrlock"], _U64)
    | _all("rwlock_", ["timedrdlock", "timedwrlock"], _UNTIL, _U64)
    | _all("rwlock_", ["unlock", "consistent"])
)
_sequence = (
    _all("sequence_", ["write", "trywrite"], _U64)
    | _all("sequence_", ["timedwrite"], _UNTIL, _U64)
    | _all("sequence_", ["finish"])
)
_sequence_begin = _declare("sequence_begin", _INT, _POINTER, _U64)
_sequence_is_whole = _declare("sequence_is_whole", _INT, _POINTER, ctypes.c_uint64)
_once = _all("once_", ["begin", "finish", "give_up"])
_semaphore = _all("semaphore_", ["wait", "trywait", "post"]) | _all("semaphore_", ["timedwait"], _UNTIL)
_semaphore_init = _declare("semaphore_init", _INT, _POINTER, _NUMBER)
_semaphore_value = _declare("semaphore_value", _INT, _POINTER, ctypes.POINTER(_NUMBER))
_condition = (
    _all("condition_", ["wait"], _POINTER, _U64)
    | _all("condition_", ["timedwait"], _POINTER, _UNTIL, _U64)
    | _all("condition_", ["signal", "broadcast"])
)
_barrier = _all("barrier_", ["wait"]) | _all("barrier_", ["timedwait"], _UNTIL)
_barrier_init = _declare("barrier_init", _INT, _POINTER, _NUMBER)
_heap_create = _declare("heap_create", _POINTER, _POINTER, _POINTER, ctypes.c_size_t)
_heap_open = _declare("heap_open", _POINTER, _POINTER, _POINTER, ctypes.c_size_t)
_heap_close = _declare("heap_close", None, _POINTER)
_heap_alloc = _declare("heap_aligned_alloc", _POINTER, _POINTER, ctypes.c_size_t, ctypes.c_size_t)
_heap_realloc = _declare("heap_realloc", _POINTER, _POINTER, _POINTER, ctypes.c_size_t)
_heap_free = _declare("heap_free", _INT, _POINTER, _POINTER)


def _fail(number):
    sentence = yasmin_segment._error().decode(errors="replace")
    raise OSError(number, sentence or os.strerror(number))


def _done(result):
    if result:
        _fail(result)


def _until(timeout):
    at = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + max(0, int(timeout * 1e9))
    return ctypes.byref(_Timespec(at // 10**9, at % 10**9))


def _wait(calls, word, member, at, timeout, *fence):
    """None: as long as it takes; 0: not at all."""
    if timeout is None:
        return calls[word](member._handle, at, *fence)
    if timeout == 0:
        return calls["try" + word](member._handle, at, *fence)
    return calls["timed" + word](member._handle, at, _until(timeout), *fence)


class Member:
    """This process as one that locks in a segment, whose slots begin at offset `at`."""

    def __init__(self, segment, *, at=0, slots=64):
        self.segment = segment
        if at < 0 or at + slots * SLOT_BYTES > segment.size:
            raise ValueError(f"{slots} slots at {at} are not inside {segment!r}")
        self._handle = _join(segment._handle, segment.address + at, slots)
        if not self._handle:
            _fail(ctypes.get_errno())

    @property
    def number(self):
        """A number that no other member of the segment ever has; 0 in a fork."""
        return _number(self._handle)

    def renew(self):
        """In a forked child, which is no member before."""
        _done(_renew(self._handle))

    def leave(self):
        handle, self._handle = self._handle, None
        _leave(handle)

    def _place(self, at, size):
        if at < 0 or at % 8 or at + size > self.segment.size:
            raise ValueError(f"offset {at} is no multiple of 8 inside {self.segment!r}")
        return self.segment.address + at

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.leave()


class _Thing:
    def __init__(self, member, *, at):
        self._member, self._at = member, member._place(at, SIZES[type(self).__name__])


class _Owned(_Thing):
    """What is held: with `fence`, the number of the acquisition, and whether an owner died."""

    _calls, _word = {}, ""
    fence, owner_died = 0, False

    def _take(self, word, timeout):
        fence = ctypes.c_uint64()
        result = _wait(self._calls, word, self._member, self._at, timeout, ctypes.byref(fence))
        if result in (errno.EBUSY, errno.ETIMEDOUT) and timeout is not None:
            return False
        if result not in (0, errno.EOWNERDEAD):
            _fail(result)
        self.fence, self.owner_died = fence.value, result == errno.EOWNERDEAD
        return True

    def acquire(self, timeout=None):
        """False: not within `timeout` seconds. Then look at owner_died."""
        return self._take(self._word, timeout)

    def release(self):
        _done(self._calls["unlock"](self._member._handle, self._at))

    def consistent(self):
        """After owner_died, when the data is whole again."""
        _done(self._calls["consistent"](self._member._handle, self._at))
        self.owner_died = False

    def __enter__(self):
        self.acquire()
        return self

    def __exit__(self, *exception):
        self.release()


class Mutex(_Owned):
    _calls, _word = _mutex, "lock"

    def init(self, kind=PLAIN):
        """Before anybody uses it; a zeroed one is plain."""
        _done(_mutex_init(self._at, kind))


class RWLock(_Owned):
    """With it, the caller writes; `with lock.reading():`, it reads."""

    _calls, _word = _rwlock, "wrlock"

    def acquire_read(self, timeout=None):
        return self._take("rdlock", timeout)

    def reading(self):
        return _Reading(self)


class _Reading:
    def __init__(self, lock):
        self._lock = lock

    def __enter__(self):
        self._lock.acquire_read()
        return self._lock

    def __exit__(self, *exception):
        self._lock.release()


class Sequence(_Owned):
    """With it, the caller writes. Readers: read(copy), which writes nothing."""

    _calls, _word = _sequence, "write"

    def release(self):
        _done(_sequence["finish"](self._member._handle, self._at))

    def consistent(self):
        """Who writes everything has made it whole."""

    def read(self, copy):
        """What `copy()` gives, at a moment when nobody wrote."""
        snapshot = ctypes.c_uint64()
        while True:
            result = _sequence_begin(self._at, ctypes.byref(snapshot))
            if result not in (0, errno.EBUSY):
                _fail(result)
            if not result:
                value = copy()
                if _sequence_is_whole(self._at, snapshot):
                    return value
            time.sleep(0)


class Semaphore(_Thing):
    def init(self, value):
        _done(_semaphore_init(self._at, value))

    def acquire(self, timeout=None):
        result = _wait(_semaphore, "wait", self._member, self._at, timeout)
        if result in (errno.EBUSY, errno.ETIMEDOUT) and timeout is not None:
            return False
        _done(result)
        return True

    def release(self):
        _done(_semaphore["post"](self._member._handle, self._at))

    @property
    def value(self):
        value = _NUMBER()
        _done(_semaphore_value(self._at, ctypes.byref(value)))
        return value.value


class Condition(_Thing):
    def wait(self, mutex, timeout=None):
        """Gives the mutex up, and has it again whatever it returns; False: nobody signalled."""
        fence, handle = ctypes.c_uint64(), self._member._handle
        if timeout is None:
            result = _condition["wait"](handle, self._at, mutex._at, ctypes.byref(fence))
        else:
            result = _condition["timedwait"](handle, self._at, mutex._at, _until(timeout), ctypes.byref(fence))
        if result == errno.ETIMEDOUT:
            return False
        if result not in (0, errno.EOWNERDEAD):
            _fail(result)
        mutex.fence, mutex.owner_died = fence.value, result == errno.EOWNERDEAD
        return True

    def notify(self):
        _done(_condition["signal"](self._member._handle, self._at))

    def notify_all(self):
        _done(_condition["broadcast"](self._member._handle, self._at))


class Barrier(_Thing):
    def init(self, parties):
        _done(_barrier_init(self._at, parties))

    def wait(self, timeout=None):
        """True to the one in each round that came last. A party's death: OSError, EOWNERDEAD."""
        if timeout is None:
            result = _barrier["wait"](self._member._handle, self._at)
        else:
            result = _barrier["timedwait"](self._member._handle, self._at, _until(timeout))
        if result > 0:
            _fail(result)
        return result < 0


class Once(_Thing):
    def call(self, make):
        """Has `make(owner_died)` called by one process, and waits until that is done."""
        result = _once["begin"](self._member._handle, self._at)
        if result == 0:
            return
        if result not in (-1, errno.EOWNERDEAD):
            _fail(result)
        try:
            make(result == errno.EOWNERDEAD)
        except BaseException:
            _once["give_up"](self._member._handle, self._at)
            raise
        _done(_once["finish"](self._member._handle, self._at))


class Heap:
    """A heap from offset `at` on, a multiple of 4096. Blocks are addresses, the same everywhere."""

    def __init__(self, member, *, at, size, create=False):
        start = member._place(at, size)
        self._member = member
        self._handle = (_heap_create if create else _heap_open)(member._handle, start, size)
        if not self._handle:
            _fail(ctypes.get_errno())

    def alloc(self, size, alignment=16):
        return _heap_alloc(self._handle, alignment, size) or _fail(ctypes.get_errno())

    def realloc(self, block, size):
        return _heap_realloc(self._handle, block, size) or _fail(ctypes.get_errno())

    def free(self, block):
        _done(_heap_free(self._handle, block))

    def close(self):
        handle, self._handle = self._handle, None
        _heap_close(handle)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
