/*
 * Calls every function of bowwave.h with valid and invalid arguments: calls DIRECTORY EXPECTED.
 * DIRECTORY has a file "data"; EXPECTED has the bytes of pattern:/3000001. Prints the first error and
 * exits with 1.
 */
#include "bowwave.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition, bowwave_last_error());     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static unsigned char *contents(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    CHECK(fseek(file, 0, SEEK_END) == 0);
    *size = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*size);
    CHECK(fread(bytes, 1, *size, file) == *size);
    fclose(file);
    return bytes;
}

static void said(const char *what) {
    CHECK(strstr(bowwave_last_error(), what) != NULL);
}

static void reads(bowwave_store *store, const char *path, const unsigned char *expected, size_t size) {
    bowwave_file *file = bowwave_file_open(store, path);
    CHECK(file != NULL);
    CHECK(bowwave_file_size(file) == (int64_t)size);
    CHECK(bowwave_file_advise(file, 0, 0, BOWWAVE_SEQUENTIAL) == 0);
    unsigned char buf[70001];
    for (size_t at = 0; at < size; at += sizeof buf) {
        size_t want = size - at < sizeof buf ? size - at : sizeof buf;
        CHECK(bowwave_read_at(file, at, buf, sizeof buf) == (int64_t)want);
        CHECK(memcmp(buf, expected + at, want) == 0);
    }
    CHECK(bowwave_read_at(file, size, buf, 1) == 0);
    CHECK(bowwave_read_at(file, UINT64_MAX, buf, sizeof buf) == 0);
    CHECK(bowwave_read_at(file, 0, NULL, 0) == 0);
    CHECK(bowwave_read_at(file, 0, NULL, 1) == -EINVAL);
    said("buffer is NULL");
    CHECK(bowwave_file_priority(file, BOWWAVE_IDLE) == 0 && bowwave_file_priority(file, BOWWAVE_REALTIME) == 0);
    CHECK(bowwave_file_priority(file, 0) == -EINVAL && bowwave_file_priority(NULL, 2) == -EINVAL);
    CHECK(bowwave_file_priority(file, 4) == -EINVAL);
    said("BOWWAVE_IDLE");
    CHECK(bowwave_file_advise(file, 0, 0, 6) == -EINVAL);
    said("BOWWAVE_NOREUSE");
    bowwave_file_close(file);
}

static void plans(bowwave_store *store, const char *path, const unsigned char *expected, size_t size) {
    bowwave_file *file = bowwave_file_open(store, path);
    CHECK(file != NULL);
    struct bowwave_counters before, after;
    CHECK(bowwave_store_counters(store, &before, sizeof before) == 0);
    /* Two ranges in order of use, the end of the file first; bytes beyond it do not exist. */
    struct bowwave_range ranges[] = {{size - 9000, 0}, {500000, 70000}, {size, 10}, {UINT64_MAX, UINT64_MAX}};
    CHECK(bowwave_file_plan(file, ranges, 4) == 0);
    CHECK(bowwave_store_counters(store, &after, sizeof after) == 0);
    CHECK(after.pages_planned > before.pages_planned && after.pages_abandoned == before.pages_abandoned);
    unsigned char buf[70000];
    CHECK(bowwave_read_at(file, size - 9000, buf, sizeof buf) == 9000);
    CHECK(memcmp(buf, expected + size - 9000, 9000) == 0);
    CHECK(bowwave_read_at(file, 500000, buf, sizeof buf) == (int64_t)sizeof buf);
    CHECK(memcmp(buf, expected + 500000, sizeof buf) == 0);
    /* Announced, then cancelled. */
    struct bowwave_range unused = {1000000, 40960};
    CHECK(bowwave_file_plan(file, &unused, 1) == 0);
    CHECK(bowwave_file_plan(file, NULL, 0) == 0);
    CHECK(bowwave_store_counters(store, &after, sizeof after) == 0);
    CHECK(after.pages_abandoned == before.pages_abandoned + 11);
    CHECK(bowwave_file_plan(file, NULL, 1) == -EINVAL);
    said("ranges are NULL");
    CHECK(bowwave_file_plan(file, ranges, SIZE_MAX) == -EINVAL);
    CHECK(bowwave_file_plan(NULL, NULL, 0) == -EINVAL);
    bowwave_file_close(file);
}

static void maps(bowwave_store *store, const char *path, const unsigned char *expected, size_t size) {
    bowwave_region *region = bowwave_map(store, path, 0, 0, 0);
    CHECK(region != NULL);
    CHECK(bowwave_region_size(region) == size);
    CHECK(memcmp(bowwave_region_address(region), expected, size) == 0);
    struct bowwave_region_counters counters;
    CHECK(bowwave_region_counters(region, &counters, sizeof counters) == 0);
    CHECK(counters.faults > 0 && counters.pages_mapped > 0 && counters.pages_poisoned == 0);
    unsigned char piece[100];
    CHECK(bowwave_region_read(region, size - 100, piece, 100) == 0);
    CHECK(memcmp(piece, expected + size - 100, 100) == 0);
    CHECK(bowwave_region_read(region, size - 99, piece, 100) == -EINVAL);
    CHECK(bowwave_region_advise(region, 0, 0, BOWWAVE_RANDOM) == 0);
    CHECK(bowwave_region_advise(region, size + 1, 1, BOWWAVE_WILLNEED) == -EINVAL);
    CHECK(bowwave_region_populate(region, 0, size + 1) == -EINVAL);
    bowwave_unmap(region);

    /* From the second page to the end, writable; the file stays unchanged. */
    region = bowwave_map(store, path, 4096, 0, BOWWAVE_COPY_ON_WRITE);
    CHECK(region != NULL && bowwave_region_size(region) == size - 4096);
    unsigned char *bytes = bowwave_region_address(region);
    CHECK(bowwave_region_populate(region, 0, size - 4096) == 0);
    bytes[7] = (unsigned char)~bytes[7];
    CHECK(bytes[7] == (unsigned char)~expected[4096 + 7] && bytes[8] == expected[4096 + 8]);
    CHECK(bowwave_region_read(region, 7, piece, 1) == 0 && piece[0] == expected[4096 + 7]);
    bowwave_unmap(region);

    /* Served by the faulting thread, with the same result. */
    region = bowwave_map(store, path, 0, 0, BOWWAVE_COPY_ON_WRITE | BOWWAVE_IN_THREAD);
    CHECK(region != NULL && bowwave_region_size(region) == size);
    bytes = bowwave_region_address(region);
    CHECK(memcmp(bytes, expected, size) == 0);
    bytes[0] = (unsigned char)~bytes[0];
    CHECK(bytes[0] == (unsigned char)~expected[0]);
    bowwave_unmap(region);

    CHECK(bowwave_map(store, path, 0, size + 1, 0) == NULL && bowwave_last_errno() == EINVAL);
    said("the file has");
    CHECK(bowwave_map(store, path, 100, 100, 0) == NULL && bowwave_last_errno() == EINVAL);
    said("multiple of 4096");
    CHECK(bowwave_map(store, path, size + 4096, 0, 0) == NULL && bowwave_last_errno() == EINVAL);
    CHECK(bowwave_map(store, path, 0, 0, 4) == NULL && bowwave_last_errno() == EINVAL);
    said("BOWWAVE_COPY_ON_WRITE");
}

static void failures(const char *directory) {
    CHECK(bowwave_last_errno() == 0 && strcmp(bowwave_last_error(), "") == 0);
    CHECK(bowwave_open(NULL, NULL) == NULL && bowwave_last_errno() == EINVAL);
    CHECK(bowwave_open("gopher://example.org/", NULL) == NULL && bowwave_last_errno() == EINVAL);
    said("unknown scheme");
    CHECK(bowwave_open("pattern:/1MiB", "cache=none") == NULL && bowwave_last_errno() == EINVAL);
    said("cache=none: not a size");
    CHECK(bowwave_open("pattern:/\xff", NULL) == NULL && bowwave_last_errno() == EINVAL);
    CHECK(bowwave_open("/no/such/directory", NULL) == NULL && bowwave_last_errno() == ENOENT);
    CHECK(bowwave_open_beside(NULL, "pattern:/1") == NULL && bowwave_last_errno() == EINVAL);
    CHECK(bowwave_file_open(NULL, "x") == NULL && bowwave_last_errno() == EINVAL);
    CHECK(bowwave_file_size(NULL) == -EINVAL);
    CHECK(bowwave_read_at(NULL, 0, NULL, 0) == -EINVAL);
    CHECK(bowwave_file_advise(NULL, 0, 0, 0) == -EINVAL);
    CHECK(bowwave_map(NULL, "x", 0, 0, 0) == NULL && bowwave_last_errno() == EINVAL);
    CHECK(bowwave_region_address(NULL) == NULL && bowwave_region_size(NULL) == 0);
    CHECK(bowwave_region_populate(NULL, 0, 0) == -EINVAL);
    CHECK(bowwave_region_read(NULL, 0, NULL, 0) == -EINVAL);
    CHECK(bowwave_region_advise(NULL, 0, 0, 0) == -EINVAL);
    CHECK(bowwave_store_counters(NULL, NULL, 0) == -EINVAL);
    CHECK(bowwave_region_counters(NULL, NULL, 0) == -EINVAL);
    bowwave_close(NULL);
    bowwave_file_close(NULL);
    bowwave_unmap(NULL);

    bowwave_store *store = bowwave_open(directory, NULL);
    CHECK(store != NULL);
    CHECK(bowwave_file_open(store, "nothing") == NULL && bowwave_last_errno() == ENOENT);
    CHECK(bowwave_file_open(store, "") == NULL && bowwave_last_errno() == EISDIR);
    CHECK(bowwave_file_open(store, "../data") == NULL);
    CHECK(bowwave_map(store, "empty", 0, 0, 0) == NULL && bowwave_last_errno() == EINVAL);
    struct bowwave_counters counters;
    CHECK(bowwave_store_counters(store, NULL, sizeof counters) == -EINVAL);
    char value[16];
    CHECK(bowwave_store_set(store, "policy", "ondemand") == 0);
    CHECK(bowwave_store_set(store, "read_ahead_kb", "256") == 0);
    CHECK(bowwave_store_get(store, "policy", value, sizeof value) == 0 && strcmp(value, "ondemand") == 0);
    CHECK(bowwave_store_get(store, "ra_pages", value, sizeof value) == 0 && strcmp(value, "64") == 0);
    CHECK(bowwave_store_set(store, "policy", "best") == -EINVAL);
    CHECK(bowwave_store_set(store, "readahead_kb", "256") == -EINVAL);
    CHECK(strstr(bowwave_last_error(), "read_ahead_kb") != NULL);
    CHECK(bowwave_store_set(store, NULL, "1") == -EINVAL);
    CHECK(bowwave_store_get(store, "policy", value, 8) == -EINVAL);
    CHECK(bowwave_store_get(store, "policy", NULL, 0) == -EINVAL);
    CHECK(bowwave_store_counters(store, &counters, 7) == -EINVAL);
    bowwave_close(store);

    /* Failed requests are errors, with or without retries. */
    store = bowwave_open("fault:errors=1:pattern:/1MiB", "retries=0 cache=8MiB");
    bowwave_file *file = bowwave_file_open(store, NULL);
    char byte;
    CHECK(file != NULL && bowwave_read_at(file, 0, &byte, 1) == -EIO);
    bowwave_region *region = bowwave_map(store, NULL, 0, 0, 0);
    CHECK(region != NULL && bowwave_region_populate(region, 0, 1) == -EIO);
    bowwave_unmap(region);
    bowwave_file_close(file);
    bowwave_close(store);
}

/* Eight times the memory budget, each word checked. */
static void swaps(const char *directory) {
    bowwave_swap *swap = bowwave_swap_open(directory, 64 << 20, 4 << 20);
    CHECK(swap != NULL);
    size_t len = 32 << 20;
    bowwave_memory *memory = bowwave_memory_new(swap, len);
    CHECK(memory != NULL && bowwave_memory_size(memory) == len);
    uint64_t *words = bowwave_memory_address(memory);
    for (size_t at = 0; at < len / 8; at++)
        words[at] = at * 0x9E3779B97F4A7C15u;
    CHECK(bowwave_memory_advise(memory, 0, 0, BOWWAVE_SEQUENTIAL) == 0);
    char value[16];
    CHECK(bowwave_swap_get(swap, "swap.policy", value, sizeof value) == 0 && strcmp(value, "adaptive") == 0);
    CHECK(bowwave_swap_set(swap, "swap.policy", "vma") == 0);
    CHECK(bowwave_swap_get(swap, "swap.policy", value, sizeof value) == 0 && strcmp(value, "vma") == 0);
    CHECK(bowwave_swap_get(swap, "swap.policy", value, 3) == -EINVAL);
    CHECK(bowwave_swap_set(swap, "swap.ra_pages", "1") == -EINVAL);
    said("at least 8");
    CHECK(bowwave_swap_set(swap, "swap.read_ahead", "1") == -EINVAL && bowwave_swap_set(swap, "swap.policy", NULL) == -EINVAL);
    for (size_t at = 0; at < len / 8; at++)
        CHECK(words[at] == at * 0x9E3779B97F4A7C15u);
    CHECK(bowwave_memory_advise(memory, 4096, 8192, BOWWAVE_DONTNEED) == 0);
    CHECK(words[511] != 0 && words[512] == 0 && words[1535] == 0 && words[1536] != 0);
    CHECK(bowwave_memory_advise(memory, 0, 0, BOWWAVE_NOREUSE) == 0);
    CHECK(bowwave_memory_advise(memory, len, 1, BOWWAVE_NORMAL) == -EINVAL);
    CHECK(bowwave_memory_advise(memory, 0, 0, 6) == -EINVAL);
    said("BOWWAVE_NOREUSE");
    struct bowwave_swap_counters counters;
    CHECK(bowwave_swap_counters(swap, &counters, sizeof counters) == 0);
    CHECK(counters.page_bytes == 4096 && counters.frames < 1024 && counters.swap_out > 4096 && counters.swap_in > 4096);
    CHECK(counters.swap_ra > 4096 && counters.swap_ra_hit >= counters.swap_ra / 100 * 99);
    CHECK(counters.frames_used <= counters.frames && counters.read_errors == 0 && counters.blocked == 0);
    CHECK(bowwave_swap_counters(swap, &counters, 7) == -EINVAL);
    CHECK(bowwave_memory_new(swap, 0) == NULL && bowwave_last_errno() == EINVAL);
    CHECK(bowwave_memory_new(swap, SIZE_MAX) == NULL && bowwave_last_errno() == EINVAL);
    bowwave_swap_close(swap);
    CHECK(words[1536] == 1536 * 0x9E3779B97F4A7C15u);
    bowwave_memory_free(memory);

    CHECK(bowwave_swap_open(NULL, 64 << 20, 0) == NULL && bowwave_last_errno() == EINVAL);
    CHECK(bowwave_swap_open(directory, 64 << 20, 1 << 20) == NULL && bowwave_last_errno() == EINVAL);
    said("4194304 at least");
    CHECK(bowwave_swap_open("/no/such/directory/file", 64 << 20, 0) == NULL && bowwave_last_errno() == ENOENT);
    CHECK(bowwave_memory_new(NULL, 1) == NULL && bowwave_memory_address(NULL) == NULL && bowwave_memory_size(NULL) == 0);
    CHECK(bowwave_memory_advise(NULL, 0, 0, 0) == -EINVAL && bowwave_swap_counters(NULL, NULL, 0) == -EINVAL);
    bowwave_swap_close(NULL);
    bowwave_memory_free(NULL);
}

static void *other_thread(void *file) {
    unsigned char byte;
    CHECK(bowwave_last_errno() == 0);
    CHECK(bowwave_read_at(file, 0, &byte, 1) == 1);
    CHECK(bowwave_read_at(file, 0, NULL, 1) == -EINVAL && bowwave_last_errno() == EINVAL);
    return NULL;
}

/* The store is closed first; another thread reads the file and has its own errors. */
static void lifetimes(void) {
    bowwave_store *store = bowwave_open("pattern:/1MiB", "cache=8MiB policy=range");
    bowwave_store *beside = bowwave_open_beside(store, "pattern:/2MiB");
    CHECK(bowwave_open("nowhere:", NULL) == NULL);
    bowwave_file *file = bowwave_file_open(beside, NULL);
    bowwave_region *region = bowwave_map(store, NULL, 0, 0, 0);
    struct bowwave_counters counters;
    memset(&counters, 0xff, sizeof counters);
    CHECK(bowwave_store_counters(store, &counters, sizeof counters) == 0);
    CHECK(counters.page_bytes == 4096 && counters.frames > 0 && counters.frames <= (8 << 20) / 4096);
    struct { struct bowwave_counters known; uint64_t unknown; } newer;
    memset(&newer, 0xff, sizeof newer);
    CHECK(bowwave_store_counters(store, &newer.known, sizeof newer) == 0 && newer.unknown == 0);
    bowwave_close(store);
    bowwave_close(beside);
    CHECK(bowwave_file_size(file) == 2 << 20);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, other_thread, file) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(strstr(bowwave_last_error(), "nowhere") != NULL);
    volatile unsigned char touched = ((unsigned char *)bowwave_region_address(region))[1000000];
    (void)touched;
    bowwave_file_close(file);
    bowwave_unmap(region);
}

static void controls(const char *directory) {
    bowwave_store *store = bowwave_open("pattern:/1MiB", "cache=8MiB");
    bowwave_swap *swap = bowwave_swap_open(directory, 64 << 20, 4 << 20);
    CHECK(store != NULL && swap != NULL);
    CHECK(bowwave_serve(NULL, NULL) == NULL && bowwave_last_errno() == EINVAL);
    said("nothing to serve");
    bowwave_control *both = bowwave_serve(store, swap), *one = bowwave_serve(store, NULL);
    CHECK(both != NULL && one != NULL);
    /* Handles may be closed before the channel. */
    bowwave_swap_close(swap);
    bowwave_close(store);
    bowwave_serve_end(one);
    bowwave_serve_end(both);
    bowwave_serve_end(NULL);
    const char *files[] = {"a", NULL};
    CHECK(bowwave_plan(NULL, files, 1, 0) == -EINVAL && bowwave_plan(directory, NULL, 1, 0) == -EINVAL);
    said("files are NULL");
    CHECK(bowwave_plan(directory, files, 2, 0) == -EINVAL && bowwave_plan(directory, files, SIZE_MAX, 0) == -EINVAL);
    CHECK(bowwave_plan(directory, files, 1, 0) == -ENOENT);
    said("no mount of bowwave");
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    failures(arguments[1]);
    size_t size;
    unsigned char *expected = contents(arguments[2], &size);
    char url[4200];
    bowwave_store *store = bowwave_open("pattern:/3000001", "cache=8MiB");
    CHECK(store != NULL);
    plans(store, NULL, expected, size);
    reads(store, NULL, expected, size);
    maps(store, "", expected, size);
    bowwave_close(store);
    const char *directories[] = {"%s", "file://%s", "emulate:nvme:%s", "emulate:s3,latency=1ms:%s"};
    for (size_t which = 0; which < sizeof directories / sizeof *directories; which++) {
        CHECK(snprintf(url, sizeof url, directories[which], arguments[1]) < (int)sizeof url);
        store = bowwave_open(url, "cache=8MiB policy=range");
        CHECK(store != NULL);
        reads(store, "data", expected, size);
        maps(store, "data", expected, size);
        struct bowwave_counters counters;
        CHECK(bowwave_store_counters(store, &counters, sizeof counters) == 0);
        CHECK(counters.bytes_fetched >= size && counters.requests > 0 && counters.requests_failed == 0);
        bowwave_close(store);
    }
    lifetimes();
    swaps(arguments[1]);
    controls(arguments[1]);
    free(expected);
    printf("%s\n", bowwave_version());
    return 0;
}
