"""Shows the words that words.c has counted so far, by following its pointers."""

import ctypes

import yasmin_segment


class Word(ctypes.Structure):
    pass


Word._fields_ = [
    ("next", ctypes.POINTER(Word)),
    ("count", ctypes.c_uint64),
    ("text", ctypes.c_char * 48),
]

with yasmin_segment.open("words") as table:
    print(f"words at {table.address:#x}")
    word = ctypes.POINTER(Word).from_address(table.address)
    while word:
        print(word.contents.count, word.contents.text.decode())
        word = word.contents.next
