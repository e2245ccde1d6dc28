"""Decode texts with the C library of the platform."""

import ctypes

libc = ctypes.CDLL(None)
libc.strpbrk.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
libc.strpbrk.restype = ctypes.c_void_p


def decode(raw):
    """Return the text from its first digit on."""
    start = libc.strpbrk(raw, b"0123456789")
    return ctypes.string_at(start or 0).decode()
