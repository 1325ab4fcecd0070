/*
 * Serves the control channel and announces files: served MOUNT FILE ... Prints "ready", waits until
 * the policies of both caches have been changed from outside, and prints them.
 */
#include "bowwave.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, bowwave_last_error());
    return 1;
}

int main(int count, char **arguments) {
    const char *const *files = (const char *const *)arguments + 2;
    if (bowwave_plan(arguments[1], files, (size_t)count - 2, 0) != 0)
        return failed("bowwave_plan");
    if (bowwave_plan(arguments[1], files, 1, 1) != 0)
        return failed("bowwave_plan");
    bowwave_store *store = bowwave_open("pattern:/1MiB", "cache=8MiB policy=none");
    bowwave_swap *swap = bowwave_swap_open("/var/tmp", 64 << 20, 4 << 20);
    bowwave_control *control = bowwave_serve(store, swap);
    if (control == NULL)
        return failed("bowwave_serve");
    pid_t child = fork();
    if (child == 0) {
        /* It does not serve: the test looks for an open socket here. */
        sleep(60);
        _exit(0);
    }
    printf("ready %d\n", child);
    fflush(stdout);
    char policy[64] = "", swap_policy[64] = "";
    for (int tries = 0; tries < 2000 && (strcmp(policy, "ondemand") != 0 || strcmp(swap_policy, "vma") != 0); tries++) {
        usleep(10000);
        if (bowwave_store_get(store, "policy", policy, sizeof policy) != 0 ||
            bowwave_swap_get(swap, "swap.policy", swap_policy, sizeof swap_policy) != 0)
            return failed("settings");
    }
    printf("%s %s\n", policy, swap_policy);
    fflush(stdout);
    bowwave_serve_end(control);
    bowwave_swap_close(swap);
    bowwave_close(store);
    /* Until the test has seen that the channel has ended. */
    getchar();
    return 0;
}
