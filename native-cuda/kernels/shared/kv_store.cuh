// store_key and store_value of the cache's type, by a macro: KV_F16 or KV_Q8_0. Needs Params and PAGE.
#pragma once

#if defined(KV_F16)
#include "shared/kv_store_f16.cuh"
#elif defined(KV_Q8_0)
#include "shared/kv_store_q8_0.cuh"
#else
#error "a type of the cache is missing"
#endif
