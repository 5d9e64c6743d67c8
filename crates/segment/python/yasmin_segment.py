"""Segments: memory that programs ask for by name, at one address in every process.

    import yasmin_segment, numpy
    yasmin_segment.create("table", 1 << 20)
    with yasmin_segment.open("table", write=True) as table:
        numbers = numpy.asarray(table).view("int64")
        numbers[0] += 1

Other processes read and write the same bytes at the same time. What is done from Python is not
atomic; use the locks of yasmin.h, or let one process write. Errors are OSErrors with a sentence.
"""

import ctypes
import ctypes.util
import os
import weakref

__all__ = ["create", "open", "remove", "allow", "Segment", "EVERYONE"]

EVERYONE = -1

_HUGE, _WITH_CREATOR = 1, 2
_READ, _WRITE, _SPARSE = 1, 2, 4
_ANYWHERE, _POPULATE = 1, 2
_RIGHTS = {"none": 0, "read": _READ, "write": _WRITE}


def _load():
    names = [
        os.environ.get("YASMIN_SEGMENT_LIBRARY"),
        # Where `make install` puts this file and the library: lib/yasmin/python and lib.
        os.path.join(os.path.dirname(__file__), "..", "..", "libyasmin-segment.so.0"),
        "libyasmin-segment.so.0",
    ]
    for name in filter(None, names):
        try:
            return ctypes.CDLL(name, use_errno=True)
        except OSError as error:
            failed = error
    raise ImportError(f"libyasmin-segment.so.0 cannot be loaded: {failed}")


def _declare(name, result, *arguments):
    function = getattr(_library, "yasmin_segment_" + name)
    function.restype, function.argtypes = result, arguments
    return function


_library = _load()
_create = _declare("create", ctypes.c_int, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint)
_open = _declare("open", ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint)
_attach = _declare("attach", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint)
_close = _declare("close", None, ctypes.c_void_p)
_remove = _declare("remove", ctypes.c_int, ctypes.c_char_p)
_allow = _declare("allow", ctypes.c_int, ctypes.c_char_p, ctypes.c_int64, ctypes.c_uint)
_size = _declare("size", ctypes.c_uint64, ctypes.c_void_p)
_error = _declare("error", ctypes.c_char_p)


def _raise():
    raise OSError(ctypes.get_errno(), _error().decode(errors="replace"))


def create(name, size, *, huge=False, with_creator=False):
    """Makes a segment of so many bytes, all zero, that belongs to this user.

    huge: of pages of 2 MiB. with_creator: it is removed when this process has ended.
    """
    if not 0 <= size < 1 << 64:
        raise ValueError(f"size {size} is no number of bytes")
    flags = huge * _HUGE | with_creator * _WITH_CREATOR
    if _create(os.fsencode(name), size, flags):
        _raise()


def remove(name):
    """Frees its name. Who has it keeps it; the memory goes with the last of them."""
    if _remove(os.fsencode(name)):
        _raise()


def allow(name, user, rights):
    """Gives a user, by number or EVERYONE, "none", "read" or "write" in place of what he had."""
    if rights not in _RIGHTS:
        raise ValueError(f"rights {rights!r}: give none, read or write")
    if _allow(os.fsencode(name), user, _RIGHTS[rights]):
        _raise()


class _Bytes(ctypes.Array):
    """The memory of a segment, as long as somebody looks at it."""

    _type_ = ctypes.c_ubyte
    _length_ = 0


class Segment:
    """An attached segment: bytes, at the same address in every process.

    memoryview(segment.view) and numpy.asarray(segment) look at its bytes without a copy; from
    Python 3.12 on memoryview(segment) does, too. It stays attached while any of them is there.
    """

    def __init__(self, handle, writable, name, flags):
        self._handle, self.writable, self.name = handle, writable, name
        self.address = _attach(handle, flags)
        if not self.address:
            try:
                _raise()
            finally:
                self._handle = None
                _close(handle)
        self.size = _size(handle)
        kind = type("_Bytes", (_Bytes,), {"_type_": ctypes.c_ubyte, "_length_": self.size})
        self._bytes = kind.from_address(self.address)

    @property
    def view(self):
        """Its bytes, as a memoryview. Who may only read gets one that cannot be written."""
        self._check()
        view = memoryview(self._bytes).cast("B")
        return view if self.writable else view.toreadonly()

    def __buffer__(self, flags):
        return self.view

    @property
    def __array_interface__(self):
        # As an object, and not as an address: so close() sees that an array looks at it.
        return {"version": 3, "shape": (self.size,), "typestr": "|u1", "data": self.view}

    def __len__(self):
        return self.size

    def __getitem__(self, at):
        part = self.view[at]
        return bytes(part) if isinstance(at, slice) else part

    def __setitem__(self, at, value):
        self.view[at] = value

    def close(self):
        """Detaches it; BufferError while a memoryview or an array still looks at it."""
        if self._handle is None:
            return
        looks = weakref.ref(self._bytes)
        self._bytes = None
        if looks() is not None:
            self._bytes = looks()
            raise BufferError(f"segment {self.name} is still looked at by a memoryview or an array")
        handle, self._handle = self._handle, None
        _close(handle)

    def _check(self):
        if self._handle is None:
            raise ValueError(f"segment {self.name} is closed")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __del__(self):
        # What looks at its bytes outlives it: then it stays attached until the process ends.
        try:
            self.close()
        except (AttributeError, BufferError, TypeError):
            pass

    def __repr__(self):
        how = "write" if self.writable else "read"
        return f"<segment {self.name}: {self.size} bytes at {self.address:#x}, {how}>"


def open(name, *, write=False, sparse=False, anywhere=False, populate=False):
    """Opens and attaches a segment.

    sparse: also where the control group could not hold all of it. anywhere: not at the address
    that it has in every process. populate: all of its memory now.
    """
    rights = (_WRITE if write else _READ) | sparse * _SPARSE
    handle = _open(os.fsencode(name), rights)
    if not handle:
        _raise()
    return Segment(handle, write, name, anywhere * _ANYWHERE | populate * _POPULATE)
