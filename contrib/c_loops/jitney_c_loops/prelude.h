/* What the C text of kernels is written in terms of. float16 and bfloat16 are float in variables, with a value that the
   type holds, and uint16_t in memory; bool is 0 or 1. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((unused))

/* --- the same bits as another type */

#define BITS(name, from, to) INLINE to name(from x) { to y; memcpy(&y, &x, sizeof y); return y; }
BITS(bits_of_float, float, int32_t)
BITS(float_of_bits, int32_t, float)
BITS(bits_of_double, double, int64_t)
BITS(double_of_bits, int64_t, double)

/* --- half types */

INLINE float load_bfloat16(uint16_t x) { return float_of_bits((int32_t)((uint32_t)x << 16)); }

INLINE uint16_t store_bfloat16(float x) {
    uint32_t bits = (uint32_t)bits_of_float(x);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16); /* to nearest, ties to even */
}

INLINE float load_float16(uint16_t x) {
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, size = x & 0x7FFF;
    float found;
    if (size >= 0x7C00) found = float_of_bits((int32_t)(0x7F800000 | (size & 0x3FF) << 13)); /* infinity, nan */
    else if (size < 0x400) found = (float)size * 0x1p-24f; /* zero and denormal numbers */
    else found = float_of_bits((int32_t)((size << 13) + ((127 - 15) << 23)));
    return float_of_bits((int32_t)((uint32_t)bits_of_float(found) | sign));
}

INLINE uint16_t store_float16(float x) {
    uint32_t bits = (uint32_t)bits_of_float(x), sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFF;
    if (size > 0x7F800000) return (uint16_t)(sign | 0x7E00);
    if (size >= 0x477FF000) return (uint16_t)(sign | 0x7C00); /* 65520 and more are infinity */
    if (size < 0x38800000) /* denormal: the addition rounds to multiples of 2**-24 */
        return (uint16_t)(sign | (uint32_t)(bits_of_float(float_of_bits((int32_t)size) + 0.5f) - 0x3F000000));
    size -= (127 - 15) << 23;
    return (uint16_t)(sign | (size + 0xFFF + (size >> 13 & 1)) >> 13);
}

INLINE float round_bfloat16(float x) { return load_bfloat16(store_bfloat16(x)); }
INLINE float round_float16(float x) { return load_float16(store_float16(x)); }

/* --- integers: division to minus infinity, nothing that traps, shifts that may be too far */

INLINE int64_t min_int(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t max_int(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE int64_t truncdiv_int(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? -a : a / b; }
INLINE int64_t fmod_int(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
INLINE int64_t mod_int(int64_t a, int64_t b) {
    int64_t rest = fmod_int(a, b);
    return rest != 0 && (rest ^ b) < 0 ? rest + b : rest;
}
INLINE int64_t floordiv_int(int64_t a, int64_t b) {
    int64_t rest = fmod_int(a, b);
    return truncdiv_int(a, b) - (rest != 0 && (rest ^ b) < 0);
}
INLINE int64_t shift_left(int64_t a, int64_t b, int bits) { return b < 0 || b >= bits ? 0 : a << b; }
INLINE int64_t shift_right(int64_t a, int64_t b, int bits) { return a >> (b < 0 || b >= bits ? bits - 1 : b); }
INLINE int64_t shift_right_unsigned(int64_t a, int64_t b, int bits) { return b < 0 || b >= bits ? 0 : a >> b; }

/* --- floating point numbers: the sign of a remainder is the divisor's; a nan wins */

#define FLOATS(type, suffix) \
    INLINE type remainder_##type(type a, type b) { \
        type rest = fmod##suffix(a, b); \
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest; \
    } \
    INLINE type maximum_##type(type a, type b) { return a > b || a != a ? a : b; } \
    INLINE type minimum_##type(type a, type b) { return a < b || a != a ? a : b; }
FLOATS(float, f)
FLOATS(double, )

/* --- random numbers: Philox 4x32, ten rounds; see jitney_lowering.philox */

INLINE float uniform(int64_t seed, int64_t counter) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)((uint64_t)seed >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)((uint64_t)counter >> 32), c2 = 0, c3 = 0;
    for (int round = 0; round < 10; round++) {
        uint64_t first = (uint64_t)c0 * 0xD2511F53u, second = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(second >> 32) ^ c1 ^ k0, c1 = (uint32_t)second;
        c2 = (uint32_t)(first >> 32) ^ c3 ^ k1, c3 = (uint32_t)first;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return (float)(c0 >> 8) * 0x1p-24f;
}
