/* Compares the functions of memory.c with those of this machine's C library; prints the first difference. */

#include <stddef.h>

#define MEMORY(name) tested_##name
void *tested_memcpy(void *restrict to, const void *restrict from, size_t n);
void *tested_memmove(void *to, const void *from, size_t n);
int tested_memcmp(const void *left, const void *right, size_t n);
int tested_bcmp(const void *left, const void *right, size_t n);

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { SIZE = 16384, AROUND = 64 };
static unsigned char ours[SIZE], expected[SIZE], other[SIZE];
static uint64_t state = 1;

static size_t below(size_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % limit;
}

static void fill(unsigned char *bytes) {
    for (size_t i = 0; i < SIZE; i++) {
        bytes[i] = (unsigned char)below(256);
    }
}

static int sign(int value) {
    return (value > 0) - (value < 0);
}

static int failed(const char *function, size_t to, size_t from, size_t n) {
    printf("%s differs: to %zu, from %zu, %zu bytes\n", function, to, from, n);
    return 1;
}

/* Every short length, then lengths around the limits of the functions. */
static size_t length(size_t round) {
    return round % 4 != 3 ? below(300) : below(5000);
}

int main(void) {
    fill(ours);
    fill(other);
    memcpy(expected, ours, SIZE);
    for (size_t round = 0; round < 400000; round++) {
        size_t n = length(round), from = below(AROUND), to = below(AROUND);
        if (tested_memcpy(ours + to, other + from, n) != ours + to) {
            return failed("the result of memcpy", to, from, n);
        }
        memcpy(expected + to, other + from, n);
        if (memcmp(ours, expected, SIZE < 6000 ? SIZE : 6000) != 0) {
            return failed("memcpy", to, from, n);
        }
        from = below(400), to = below(400);
        if (tested_memmove(ours + to, ours + from, n) != ours + to) {
            return failed("the result of memmove", to, from, n);
        }
        memmove(expected + to, expected + from, n);
        if (memcmp(ours, expected, 6000) != 0) {
            return failed("memmove", to, from, n);
        }
        /* Equal ranges, with at most one different byte. */
        memcpy(other + 8192 + to, ours + from, n);
        if (n > 0 && round % 3 != 0) {
            other[8192 + to + below(n)] ^= (unsigned char)(1 << below(8));
        }
        int order = memcmp(ours + from, other + 8192 + to, n);
        if (sign(tested_memcmp(ours + from, other + 8192 + to, n)) != sign(order)) {
            return failed("memcmp", to, from, n);
        }
        if ((tested_bcmp(ours + from, other + 8192 + to, n) != 0) != (order != 0)) {
            return failed("bcmp", to, from, n);
        }
    }
    return 0;
}
