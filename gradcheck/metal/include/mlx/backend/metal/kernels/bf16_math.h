// In place of MLX's header of this name, which gives bfloat the functions of <metal_math> and <metal_simdgroup> through compiler internals of
// Apple's: ours have them already.
#pragma once
#include <metal_stdlib>
