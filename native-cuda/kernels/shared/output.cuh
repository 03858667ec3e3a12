// Form of an operation's output, by a macro: OUTPUT_F32, OUTPUT_ADD or OUTPUT_Q8. Needs Params with `width`.
//   OUT_POINTERS   the kernel's last arguments
//   OUT            them as a value, to hand on
//   emit(params, OUT, row, lane, first, values)   called by every lane of a block with values of columns first..first+4
#pragma once

#if defined(OUTPUT_F32)
#include "shared/out_f32.cuh"
#elif defined(OUTPUT_ADD)
#include "shared/out_add.cuh"
#elif defined(OUTPUT_Q8)
#include "shared/out_q8.cuh"
#else
#error "a form of output is missing"
#endif
