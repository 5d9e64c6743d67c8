"""Each class of yasmin_sync between processes, some of which are killed while they hold a lock."""

import errno
import os
import signal
import threading

import yasmin_segment
import yasmin_sync
from yasmin_sync import Barrier, Condition, Heap, Member, Mutex, Once, RWLock, Semaphore, Sequence

yasmin_segment.create("sync", 1 << 20)
table = yasmin_segment.open("sync", write=True)
member = Member(table, slots=16)


def child(act):
    """Runs `act` in a process that is then killed; its id, when `act` is done."""
    there, here = os.pipe()
    process = os.fork()
    if not process:
        try:
            member.renew()
            act()
            os.write(here, b"x")
            signal.pause()
        finally:
            os._exit(1)
    os.close(here)
    assert os.read(there, 1) == b"x"
    os.close(there)
    return process


def kill(process):
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def refused(number, call):
    try:
        call()
    except OSError as error:
        assert error.errno == number and error.strerror, error
    else:
        raise AssertionError(number)


mutex = Mutex(member, at=1024)
mutex.init(yasmin_sync.ERROR_CHECKING)
with mutex as held:
    first = held.fence
    assert not held.owner_died
    refused(errno.EDEADLK, mutex.acquire)
holder = child(lambda: mutex.acquire())
assert not mutex.acquire(timeout=0) and not mutex.acquire(timeout=0.02)
kill(holder)
with mutex as held:
    assert held.owner_died and held.fence > first
    held.consistent()
refused(errno.EPERM, mutex.release)

lock = RWLock(member, at=2048)
with lock.reading():
    reader = child(lambda: lock.acquire_read())
    refused(errno.EDEADLK, lock.acquire)
assert not lock.acquire(timeout=0)
kill(reader)
with lock:
    assert not lock.owner_died

semaphore = Semaphore(member, at=3072)
semaphore.init(1)
assert semaphore.acquire() and semaphore.value == 0
assert not semaphore.acquire(timeout=0) and not semaphore.acquire(timeout=0.02)
semaphore.release()
assert semaphore.acquire(timeout=10)

sequence = Sequence(member, at=3200)
with sequence:
    table[4000:4008] = b"complete"
assert sequence.read(lambda: table[4000:4008]) == b"complete"

barrier = Barrier(member, at=3328)
barrier.init(2)
last = []
other = threading.Thread(target=lambda: last.append(barrier.wait()))
other.start()
last.append(barrier.wait(timeout=10))
other.join()
assert sorted(last) == [False, True]
refused(errno.ETIMEDOUT, lambda: barrier.wait(timeout=0.02))

condition, told = Condition(member, at=3840), []


def tell():
    with mutex:
        told.append(1)
        condition.notify_all()


with mutex:
    assert not condition.wait(mutex, timeout=0.02)
    other = threading.Thread(target=tell)
    other.start()
    while not told:
        condition.wait(mutex, timeout=10)
other.join()

once, made = Once(member, at=3904), []
for _ in range(2):
    once.call(made.append)
assert made == [False]

with Heap(member, at=8192, size=65536, create=True) as heap:
    block = heap.alloc(100)
    assert table.address + 8192 <= block < table.address + 8192 + 65536
    assert heap.alloc(100, alignment=4096) % 4096 == 0
    block = heap.realloc(block, 8000)
    heap.free(block)
    refused(errno.EINVAL, lambda: heap.free(block))
    refused(errno.ENOMEM, lambda: heap.alloc(1 << 20))

member.leave()
table.close()
print("all is well")
