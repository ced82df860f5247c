/*
 * Copies and compares memory for the packaged program, in place of musl's functions on x86-64.
 *
 * musl copies with `rep movsq` however little there is to copy, and compares byte by byte. A manager copies and compares
 * mostly names, labels and parts of JSON, which are short: what takes few bytes is one load and one store at either
 * end of the range here, which overlap in the middle. The C library's other functions stay musl's.
 *
 * This file is compiled without the compiler's knowledge of these functions (build.rs), so that no loop below becomes a
 * call of the function that it implements. `MEMORY(name)` lets a test compile it under other names.
 */

#include <stddef.h>
#include <stdint.h>

#ifndef MEMORY
#define MEMORY(name) name
#endif

/* Loads and stores without an alignment; the compiler makes one instruction of each. */
#define DEFINE_ACCESS(type, name)                                                                                           \
    static inline type load_##name(const unsigned char *from) {                                                            \
        type value;                                                                                                        \
        __builtin_memcpy(&value, from, sizeof value);                                                                      \
        return value;                                                                                                      \
    }                                                                                                                      \
    static inline void store_##name(unsigned char *to, type value) { __builtin_memcpy(to, &value, sizeof value); }

typedef long long two_words __attribute__((vector_size(16)));

DEFINE_ACCESS(uint16_t, 2)
DEFINE_ACCESS(uint32_t, 4)
DEFINE_ACCESS(uint64_t, 8)
DEFINE_ACCESS(two_words, 16)

/* From here on, `rep movsq` is as fast as any loop. */
#define LONG 2048

/* Copies up to 64 bytes. Everything is loaded before anything is stored, so that the ranges may overlap. */
static inline void copy_short(unsigned char *to, const unsigned char *from, size_t n) {
    if (n > 32) {
        two_words a = load_16(from), b = load_16(from + 16), c = load_16(from + n - 32), d = load_16(from + n - 16);
        store_16(to, a);
        store_16(to + 16, b);
        store_16(to + n - 32, c);
        store_16(to + n - 16, d);
    } else if (n >= 16) {
        two_words a = load_16(from), b = load_16(from + n - 16);
        store_16(to, a);
        store_16(to + n - 16, b);
    } else if (n >= 8) {
        uint64_t a = load_8(from), b = load_8(from + n - 8);
        store_8(to, a);
        store_8(to + n - 8, b);
    } else if (n >= 4) {
        uint32_t a = load_4(from), b = load_4(from + n - 4);
        store_4(to, a);
        store_4(to + n - 4, b);
    } else if (n >= 2) {
        uint16_t a = load_2(from), b = load_2(from + n - 2);
        store_2(to, a);
        store_2(to + n - 2, b);
    } else if (n == 1) {
        *to = *from;
    }
}

/* The 64 bytes at one end of a range, which a loop over the rest may overwrite. */
struct end {
    two_words part[4];
};

static inline struct end load_end(const unsigned char *from) {
    return (struct end){{load_16(from), load_16(from + 16), load_16(from + 32), load_16(from + 48)}};
}

static inline void store_end(unsigned char *to, struct end end) {
    store_16(to, end.part[0]);
    store_16(to + 16, end.part[1]);
    store_16(to + 32, end.part[2]);
    store_16(to + 48, end.part[3]);
}

/* Copies more than 64 bytes from the first to the last; `to` is not within the range that is read, behind its begin. */
static inline void copy_forward(unsigned char *to, const unsigned char *from, size_t n) {
    struct end last = load_end(from + n - 64);
    unsigned char *to_last = to + n - 64;
    if (n >= LONG) {
        /* It is several times slower if the destination is not aligned. */
        for (; (uintptr_t)to % 8 != 0; n--) {
            *to++ = *from++;
        }
        size_t words = n / 8;
        __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
    } else {
        for (; to < to_last; to += 64, from += 64) {
            store_end(to, load_end(from));
        }
    }
    store_end(to_last, last);
}

/* Copies more than 64 bytes from the last to the first. */
static inline void copy_backward(unsigned char *to, const unsigned char *from, size_t n) {
    struct end first = load_end(from);
    for (size_t left = n; left > 64; left -= 64) {
        store_end(to + left - 64, load_end(from + left - 64));
    }
    store_end(to, first);
}

void *MEMORY(memcpy)(void *restrict to, const void *restrict from, size_t n) {
    if (n <= 64) {
        copy_short(to, from, n);
    } else {
        copy_forward(to, from, n);
    }
    return to;
}

void *MEMORY(memmove)(void *to, const void *from, size_t n) {
    if (n <= 64) {
        copy_short(to, from, n);
    } else if ((uintptr_t)to - (uintptr_t)from >= n) {
        copy_forward(to, from, n);
    } else {
        copy_backward(to, from, n);
    }
    return to;
}

/* Compares two words as their bytes in memory compare. */
static inline int order(uint64_t a, uint64_t b) {
    a = __builtin_bswap64(a);
    b = __builtin_bswap64(b);
    return (a > b) - (a < b);
}

int MEMORY(memcmp)(const void *left, const void *right, size_t n) {
    const unsigned char *a = left, *b = right;
    if (n < 8) {
        for (; n > 0; n--, a++, b++) {
            if (*a != *b) {
                return *a - *b;
            }
        }
        return 0;
    }
    for (; n > 8; n -= 8, a += 8, b += 8) {
        uint64_t x = load_8(a), y = load_8(b);
        if (x != y) {
            return order(x, y);
        }
        if (n < 16) {
            /* The last word, which overlaps this one. */
            a -= 16 - n;
            b -= 16 - n;
            n = 16;
        }
    }
    return order(load_8(a), load_8(b));
}

int MEMORY(bcmp)(const void *left, const void *right, size_t n) {
    const unsigned char *a = left, *b = right;
    if (n >= 8) {
        for (; n > 16; n -= 16, a += 16, b += 16) {
            if ((load_8(a) ^ load_8(b)) | (load_8(a + 8) ^ load_8(b + 8))) {
                return 1;
            }
        }
        if (n >= 8) {
            return ((load_8(a) ^ load_8(b)) | (load_8(a + n - 8) ^ load_8(b + n - 8))) != 0;
        }
        /* Fewer than eight bytes are left of at least nine: the last word overlaps what is known to be equal. */
        return (load_8(a + n - 8) ^ load_8(b + n - 8)) != 0;
    }
    if (n >= 4) {
        return ((load_4(a) ^ load_4(b)) | (load_4(a + n - 4) ^ load_4(b + n - 4))) != 0;
    }
    unsigned different = 0;
    for (; n > 0; n--, a++, b++) {
        different |= *a ^ *b;
    }
    return different != 0;
}
