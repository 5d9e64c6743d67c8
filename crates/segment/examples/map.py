"""Looks up keys in the map that map.c made, by its pointers, and counts that in the entry."""

import ctypes
import sys

import yasmin_segment
import yasmin_sync

SLOTS, BUCKETS, HEAP_AT = 60, 64, 8192
LOCK_AT = SLOTS * yasmin_sync.SLOT_BYTES
BUCKETS_AT = LOCK_AT + yasmin_sync.SIZES["RWLock"]


class Entry(ctypes.Structure):
    pass


Entry._fields_ = [
    ("next", ctypes.POINTER(Entry)),
    ("reads", ctypes.c_uint64),
    ("value", ctypes.c_void_p),
]


def find(table, key):
    hashed = 5381
    for byte in key:
        hashed = (hashed * 33 + byte) % 2**32
    first = table.address + BUCKETS_AT + hashed % BUCKETS * 8
    entry = ctypes.POINTER(Entry).from_address(first)
    while entry:
        address = ctypes.addressof(entry.contents)
        if ctypes.string_at(address + ctypes.sizeof(Entry)) == key:
            return entry.contents
        entry = entry.contents.next
    return None


with yasmin_segment.open("map", write=True) as table, yasmin_sync.Member(table, slots=SLOTS) as member:
    lock = yasmin_sync.RWLock(member, at=LOCK_AT)
    heap = yasmin_sync.Heap(member, at=HEAP_AT, size=table.size - HEAP_AT)
    for key in sys.argv[1:]:
        name, _, value = key.partition("=")
        with lock:
            if lock.owner_died:
                lock.consistent()
            entry = find(table, name.encode())
            if entry is None:
                print(f"{name} is not in the map")
            elif value:
                # In place of C's block one of Python's, in the same heap.
                text = value.encode() + b"\0"
                new, old = heap.alloc(len(text)), entry.value
                ctypes.memmove(new, text, len(text))
                entry.value = new
                heap.free(old)
            else:
                entry.reads += 1
                print(f"{name} is {ctypes.string_at(entry.value).decode()}, read {entry.reads} times")
    heap.close()
