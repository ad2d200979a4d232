// The Metal names that kernel bodies use, for a C++ compiler, and the frame that runs a body thread by thread.
//
// Every buffer is an allocation of its own and exactly as long as its array, so that the address sanitizer sees any index beyond it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define device
#define constant const
#define thread

typedef unsigned int uint;
struct uint3 {
    uint x, y, z;
};

struct Buffer {
    void* data;
    uint64_t bytes;
};

inline void read_exactly(void* target, uint64_t bytes, FILE* file) {
    if (bytes && fread(target, 1, bytes, file) != bytes) {
        fprintf(stderr, "the input file is too short\n");
        exit(2);
    }
}

// An input file holds, for each buffer, its length in bytes (64 bits) and its content.
inline Buffer read_buffer(FILE* file) {
    Buffer buffer;
    read_exactly(&buffer.bytes, sizeof buffer.bytes, file);
    buffer.data = malloc(buffer.bytes);
    read_exactly(buffer.data, buffer.bytes, file);
    return buffer;
}

inline void write_buffer(const Buffer& buffer, FILE* file) {
    if (fwrite(buffer.data, 1, buffer.bytes, file) != buffer.bytes) {
        fprintf(stderr, "the output file cannot be written\n");
        exit(2);
    }
}
