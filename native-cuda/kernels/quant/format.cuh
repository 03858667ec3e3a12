// The weights' format, by a macro. Needs Params.
#pragma once

#if defined(QUANT_F32)
#include "quant/f32.cuh"
#elif defined(QUANT_F16)
#include "quant/f16.cuh"
#elif defined(QUANT_BF16)
#include "quant/bf16.cuh"
#elif defined(QUANT_Q4_0)
#include "quant/q4_0.cuh"
#elif defined(QUANT_Q4_1)
#include "quant/q4_1.cuh"
#elif defined(QUANT_Q5_0)
#include "quant/q5_0.cuh"
#elif defined(QUANT_Q5_1)
#include "quant/q5_1.cuh"
#elif defined(QUANT_Q8_0)
#include "quant/q8_0.cuh"
#elif defined(QUANT_Q4_K)
#include "quant/q4_k.cuh"
#elif defined(QUANT_Q5_K)
#include "quant/q5_k.cuh"
#elif defined(QUANT_Q6_K)
#include "quant/q6_k.cuh"
#else
#error "a format of weights is missing"
#endif
