/*
 * Maps a file of any store, accesses some pages, and prints the bytes read from the store.
 *
 *     cc examples/touch.c -Iinclude -L../../target/release -lbowwave -o touch
 *     LD_LIBRARY_PATH=../../target/release ./touch emulate:s3/1GiB '' policy=range
 */
#include "bowwave.h"

#include <stdio.h>

int main(int count, char **arguments) {
    if (count < 2) {
        fprintf(stderr, "usage: %s URL [PATH [OPTIONS]]\n", arguments[0]);
        return 2;
    }
    bowwave_store *store = bowwave_open(arguments[1], count > 3 ? arguments[3] : NULL);
    bowwave_region *region = store ? bowwave_map(store, count > 2 ? arguments[2] : NULL, 0, 0, 0) : NULL;
    if (region == NULL) {
        fprintf(stderr, "%s: %s\n", arguments[1], bowwave_last_error());
        return 1;
    }
    const unsigned char *bytes = bowwave_region_address(region);
    size_t size = bowwave_region_size(region);
    /* An error on access would raise a signal; populate returns it instead. */
    if (bowwave_region_populate(region, 0, 1) != 0) {
        fprintf(stderr, "%s: %s\n", arguments[1], bowwave_last_error());
        return 1;
    }
    unsigned sum = 0;
    size_t touched = 0;
    for (size_t at = 0; at < size; at += size / 16 + 1) {
        for (size_t near = at; near < size && near < at + 65536; near += 4096, touched++)
            sum += bytes[near];
    }
    struct bowwave_counters counters;
    bowwave_store_counters(store, &counters, sizeof counters);
    printf("bowwave %s: %zu bytes mapped, %zu touched (sum %u), %llu bytes in %llu requests\n", bowwave_version(), size,
           touched, sum, (unsigned long long)counters.bytes_fetched, (unsigned long long)counters.requests);
    bowwave_unmap(region);
    bowwave_close(store);
    return 0;
}
