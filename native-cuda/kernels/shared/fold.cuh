// fold(m, x, row, segment, x_rows, acc) of the weights' format, and what it takes as x. Needs Params and TILE.
#pragma once

#include "quant/format.cuh"

#ifdef FLOAT_WEIGHTS
#include "shared/fold_float.cuh"
#else
#include "shared/fold_q8.cuh"
#endif
