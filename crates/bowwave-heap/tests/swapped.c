// Uses several times the memory budget in all ways programs do, and checks each byte. Prints a line
// per part, the same with and without swapped memory. argv[1]: MiB; argv[2]: a directory.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define CHECK(what) do { if (!(what)) { printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); exit(1); } } while (0)

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static void fill(void *at, size_t bytes, uint64_t seed) {
    uint64_t *words = at;
    for (size_t i = 0; i < bytes / 8; i++)
        words[i] = mix(seed + i);
}

static int holds(const void *at, size_t bytes, uint64_t seed) {
    const uint64_t *words = at;
    for (size_t i = 0; i < bytes / 8; i++)
        if (words[i] != mix(seed + i))
            return 0;
    return 1;
}

static int zeros(const char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (at[i])
            return 0;
    return 1;
}

// Hides the size from the compiler, which would reject impossible allocations.
static volatile size_t huge = SIZE_MAX / 2;

// One allocation, accessed sequentially and at random.
static void large(size_t total) {
    uint64_t *words = malloc(total);
    CHECK(words);
    fill(words, total, 1);
    uint64_t state = 7;
    for (int i = 0; i < 20000; i++) {
        state = mix(state + i);
        size_t at = state % (total / 8);
        CHECK(words[at] == mix(1 + at));
    }
    CHECK(holds(words, total, 1));
    free(words);
    char *clean = calloc(total / 64, 64);
    CHECK(clean && zeros(clean, total));
    free(clean);
    CHECK(malloc(huge) == NULL && errno == ENOMEM);
    CHECK(calloc(huge, 4) == NULL && errno == ENOMEM);
    printf("large\n");
}

// Many sizes, freed and allocated again.
static void many(size_t total) {
    enum { COUNT = 3000 };
    static struct { char *at; size_t bytes; uint64_t seed; } kept[COUNT];
    uint64_t state = 99;
    size_t used = 0;
    for (int turn = 0; turn < 40000; turn++) {
        state = mix(state + turn);
        int i = state % COUNT;
        if (kept[i].at) {
            CHECK(holds(kept[i].at, kept[i].bytes & ~7ul, kept[i].seed));
            if (state >> 20 & 1) {
                used -= kept[i].bytes;
                free(kept[i].at);
                kept[i].at = NULL;
                continue;
            }
        }
        size_t bytes = 8 + (mix(state) % ((size_t)64 << (state >> 32) % 12));
        if (used + bytes > total)
            continue;
        size_t before = kept[i].at ? kept[i].bytes : 0;
        char *at = realloc(kept[i].at, bytes);
        CHECK(at && malloc_usable_size(at) >= bytes);
        CHECK(!before || holds(at, (before < bytes ? before : bytes) & ~7ul, kept[i].seed));
        used += bytes - before;
        kept[i].at = at, kept[i].bytes = bytes, kept[i].seed = state;
        fill(at, bytes, state);
    }
    for (int i = 0; i < COUNT; i++) {
        CHECK(!kept[i].at || holds(kept[i].at, kept[i].bytes & ~7ul, kept[i].seed));
        free(kept[i].at);
        kept[i].at = NULL;
    }
    printf("many\n");
}

// An allocation that grows across the boundary between the two heaps.
static void growing(size_t total) {
    size_t bytes = 64;
    char *at = malloc(bytes);
    for (fill(at, bytes, 5); bytes < total; bytes = bytes * 5 / 4 / 8 * 8 + 8) {
        CHECK(holds(at, bytes, 5));
        size_t next = bytes * 5 / 4 / 8 * 8 + 8;
        at = realloc(at, next);
        CHECK(at);
        uint64_t *words = (uint64_t *)at;
        for (size_t i = bytes / 8; i < next / 8; i++)
            words[i] = mix(5 + i);
    }
    at = realloc(at, 3 * MIB);
    CHECK(at && holds(at, 3 * MIB, 5));
    at = reallocarray(at, 1000, 8);
    CHECK(at && holds(at, 8000, 5));
    CHECK(reallocarray(at, huge, 8) == NULL && errno == ENOMEM);
    at = realloc(at, 64);
    CHECK(at && holds(at, 64, 5) && realloc(at, 0) == NULL);
    printf("growing\n");
}

static void aligned(void) {
    for (size_t align = 8; align <= 4 * MIB; align *= 2) {
        for (size_t bytes = 24; bytes <= 2 * MIB; bytes *= 9) {
            void *at = NULL;
            CHECK(posix_memalign(&at, align, bytes) == 0 && (uintptr_t)at % align == 0);
            fill(at, bytes, align);
            void *other = aligned_alloc(align, bytes);
            CHECK(other && (uintptr_t)other % align == 0 && other != at);
            memset(other, 0xFF, bytes);
            CHECK(holds(at, bytes & ~7ul, align));
            free(at);
            free(other);
        }
    }
    void *at = NULL;
    CHECK(posix_memalign(&at, 24, 100000) == EINVAL && posix_memalign(&at, 4, 100000) == EINVAL);
    at = valloc(100001);
    CHECK((uintptr_t)at % 4096 == 0);
    free(at);
    at = pvalloc(100001);
    CHECK((uintptr_t)at % 4096 == 0 && malloc_usable_size(at) >= 102400);
    free(at);
    printf("aligned\n");
}

static void maps(size_t total) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS, both = PROT_READ | PROT_WRITE;
    char *at = mmap(NULL, total, both, flags, -1, 0);
    CHECK(at != MAP_FAILED && zeros(at, total));
    fill(at, total, 3);
    // Moved, grown, shrunk.
    char *moved = mremap(at, total, total + 4 * MIB, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && holds(moved, total, 3) && zeros(moved + total, 4 * MIB));
    CHECK(mremap(moved, total + 4 * MIB, total, 0) == moved && holds(moved, total, 3));
    // Discarded in the middle by advice, by mapping over it, and by unmapping.
    CHECK(madvise(moved + MIB, MIB, MADV_DONTNEED) == 0);
    CHECK(mmap(moved + 2 * MIB, MIB, both, flags | MAP_FIXED, -1, 0) == moved + 2 * MIB);
    CHECK(zeros(moved + MIB, 2 * MIB) && holds(moved, MIB, 3));
    CHECK(holds(moved + 3 * MIB, MIB, 3 + 3 * MIB / 8));
    CHECK(munmap(moved + MIB, MIB) == 0);
    CHECK(holds(moved + 3 * MIB, total - 3 * MIB, 3 + 3 * MIB / 8));
    CHECK(madvise(moved + 3 * MIB, MIB, MADV_WILLNEED) == 0 && madvise(moved, MIB, MADV_SEQUENTIAL) == 0);
    CHECK(madvise(moved, MIB, MADV_HUGEPAGE) == 0 && madvise(moved, MIB, 12345) == -1 && errno == EINVAL);
    CHECK(munmap(moved, MIB) == 0 && munmap(moved + 2 * MIB, total - 2 * MIB) == 0);
    // Maps that the swap does not serve.
    char *code = mmap(NULL, 4 * MIB, both | PROT_EXEC, flags, -1, 0);
    CHECK(code != MAP_FAILED && munmap(code, 4 * MIB) == 0);
    char *shared = mmap(NULL, 4 * MIB, both, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    if (fork() == 0) {
        shared[5] = 6;
        _exit(0);
    }
    wait(NULL);
    CHECK(shared[5] == 6 && munmap(shared, 4 * MIB) == 0);
    printf("maps\n");
}

// The kernel reads and writes swapped-out memory.
static void calls(size_t total, const char *directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/file", directory);
    char *at = malloc(total), *other = malloc(total);
    fill(at, total, 11);
    memset(other, 1, total);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    for (size_t done = 0; done < total;) {
        ssize_t now = write(fd, at + done, total - done);
        CHECK(now > 0);
        done += now;
    }
    memset(at, 0, total);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    for (size_t done = 0; done < total;) {
        ssize_t now = read(fd, other + done, total - done);
        CHECK(now > 0);
        done += now;
    }
    CHECK(holds(other, total, 11) && zeros(at, total));
    FILE *stream = fopen(path, "r");
    CHECK(stream && fread(at, 1, total, stream) == total && holds(at, total, 11));
    CHECK(fclose(stream) == 0 && close(fd) == 0 && unlink(path) == 0);
    free(at);
    free(other);
    printf("calls\n");
}

static size_t share;

static void *work(void *argument) {
    uint64_t seed = (uintptr_t)argument * 1000003;
    for (int turn = 0; turn < 3; turn++) {
        char *at = malloc(share);
        fill(at, share, seed + turn);
        char *pieces[64];
        for (int i = 0; i < 64; i++)
            fill(pieces[i] = malloc(4096 << i % 5), 4096 << i % 5, i);
        for (int i = 0; i < 64; i++) {
            if (!holds(pieces[i], 4096 << i % 5, i))
                return "pieces";
            free(pieces[i]);
        }
        if (!holds(at, share, seed + turn))
            return "all";
        free(at);
    }
    return NULL;
}

// A signal handler reads memory while other threads swap and this thread allocates.
static uint64_t *watched;
static size_t watched_bytes;
static volatile sig_atomic_t alarms, wrong;

static void look(int number) {
    (void)number;
    int before = errno;
    size_t at = mix(alarms) % (watched_bytes / 8);
    wrong |= watched[at] != mix(17 + at);
    alarms++;
    errno = before;
}

static void threads(size_t total) {
    share = total / 8;
    watched_bytes = total / 2;
    watched = malloc(watched_bytes);
    fill(watched, watched_bytes, 17);
    struct sigaction action = {.sa_handler = look, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t workers[4];
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&workers[i], NULL, work, (void *)(i + 1)) == 0);
    for (int i = 0; i < 300; i++) {
        kill(getpid(), SIGUSR1);
        pthread_kill(workers[i % 4], 0);
        char *at = malloc(300000);
        at[i] = 1;
        free(at);
    }
    for (int i = 0; i < 4; i++) {
        void *said = NULL;
        CHECK(pthread_join(workers[i], &said) == 0);
        if (said)
            printf("a thread: %s\n", (char *)said);
        CHECK(!said);
    }
    CHECK(!wrong && alarms > 0 && holds(watched, watched_bytes, 17));
    free(watched);
    printf("threads\n");
}

// A child has its own memory, and may free its parent's.
static void forks(size_t total) {
    char *at = malloc(total / 2);
    fill(at, total / 2, 23);
    char *map = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    map[5] = 6;
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        free(at);
        // The child's new memory must not be mistaken for its unmapped memory.
        if (munmap(map, total) != 0)
            _exit(5);
        char *pieces[200];
        for (int i = 0; i < 200; i++)
            fill(pieces[i] = malloc(1000 << i % 9), 1000 << i % 9, i);
        for (int i = 0; i < 200; i++) {
            pieces[i] = realloc(pieces[i], 2000 << i % 9);
            if (!holds(pieces[i], 1000 << i % 9, i))
                _exit(6);
            free(pieces[i]);
        }
        char *own = malloc(total / 2);
        fill(own, total / 2, 29);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            free(own);
            own = malloc(total / 4);
            fill(own, total / 4, 31);
            _exit(holds(own, total / 4, 31) ? 0 : 3);
        }
        int status = 1;
        waitpid(grandchild, &status, 0);
        _exit(holds(own, total / 2, 29) && status == 0 ? 0 : 4);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        printf("a child: %x\n", status);
    CHECK(status == 0 && holds(at, total / 2, 23) && map[5] == 6 && munmap(map, total) == 0);
    CHECK(system("true") == 0);
    free(at);
    printf("forks\n");
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    size_t total = strtoul(arguments[1], NULL, 10) * MIB;
    large(total);
    many(total);
    growing(total);
    aligned();
    maps(total);
    calls(total / 2, arguments[2]);
    threads(total);
    forks(total);
    return 0;
}
