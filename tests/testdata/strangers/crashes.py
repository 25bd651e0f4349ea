"""Wrong: the VJP reads address 0, which takes the interpreter down."""

import ctypes

from _scan import Scan


class Crashes(Scan):
    def vjp(self, inputs, cotangents):
        ctypes.string_at(0)
        return super().vjp(inputs, cotangents)


scan = Crashes().function()
