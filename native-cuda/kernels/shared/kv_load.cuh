// How `attention` reads the cache, by a macro: KV_F16 or KV_Q8_0. Needs Params, PAGE and MAX_HEAD_DIM.
#pragma once

#if defined(KV_F16)
#include "shared/kv_load_f16.cuh"
#elif defined(KV_Q8_0)
#include "shared/kv_load_q8_0.cuh"
#else
#error "a type of the cache is missing"
#endif
