"""`include/gcm/abi.h` in ctypes: what a compiled kernel, the runtime and Python agree on."""

from __future__ import annotations

import ctypes as c

ABI = 2
INPUT, OUTPUT, META = 0, 1, 2
NO_BUFFER = 0xFFFFFFFF
SCHEDULES = {"in-order": 0, "lock-step": 1, "reverse": 2, "random": 3}

KINDS = {
    1: "out of bounds",
    2: "race",
    3: "race, same value",
    4: "uninitialised read",
    5: "write to an input",
    6: "barrier divergence",
    7: "simdgroup divergence",
    8: "fault",
    9: "undefined behaviour",
    10: "deadlock",
    11: "too much threadgroup memory",
    12: "unwritten output",
    13: "misaligned access",
    14: "out of time",
    15: "weak barrier",
    16: "stack overflow",
}
"""The kinds of reports, in a reader's words."""


class Buffer(c.Structure):
    """`gcm_buffer`."""

    _fields_ = (
        ("data", c.c_void_p),
        ("bytes", c.c_uint64),
        ("kind", c.c_uint32),
        ("initialised", c.c_uint32),
        ("element", c.c_uint64),
        ("name", c.c_char_p),
    )


class Report(c.Structure):
    """`gcm_report`."""

    _fields_ = (
        ("kind", c.c_uint32),
        ("buffer", c.c_uint32),
        ("pc", c.c_uint64),
        ("pc2", c.c_uint64),
        ("offset", c.c_int64),  # signed where out of bounds
        ("size", c.c_uint32),
        ("write", c.c_uint32),
        ("group", c.c_uint32),
        ("thread", c.c_uint32),
        ("group2", c.c_uint32),
        ("thread2", c.c_uint32),
        ("write2", c.c_uint32),
        ("line", c.c_uint32),
        ("column", c.c_uint32),
        ("count", c.c_uint32),
        ("name", c.c_char * 64),
        ("detail", c.c_char * 192),
    )


class Call(c.Structure):
    """`gcm_call`."""

    _fields_ = (
        ("entry", c.c_void_p),
        ("loop", c.c_void_p),
        ("buffers", c.POINTER(Buffer)),
        ("n_buffers", c.c_uint32),
        ("checked", c.c_uint32),
        ("grid", c.c_uint32 * 3),
        ("threadgroup", c.c_uint32 * 3),
        ("schedule", c.c_uint32),
        ("threads", c.c_uint32),
        ("seed", c.c_uint64),
        ("budget", c.c_uint64),
        ("library_low", c.c_void_p),
        ("library_high", c.c_void_p),
    )


class Result(c.Structure):
    """`gcm_result`."""

    _fields_ = (
        ("n_reports", c.c_uint32),
        ("status", c.c_uint32),
        ("switches", c.c_uint64),
        ("collectives", c.c_uint64),
        ("reports", Report * 64),
    )
