/*
 * Calls C library functions on the files below a directory, and prints each result: calls ROOT. The
 * output must be the same whether ROOT is a directory or a store served by bowwave.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *root;
static char big[3000001 + 4096];

static const char *at(const char *path) {
    static char whole[4][PATH_MAX];
    static int next;
    char *into = whole[next++ % 4];
    snprintf(into, PATH_MAX, "%s/%s", root, path);
    return into;
}

static unsigned long sum(const void *bytes, size_t len) {
    unsigned long hash = 14695981039346656037ul;
    for (size_t i = 0; i < len; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211ul;
    return hash;
}

#define SAY(format, ...) printf("%d: " format "\n", __LINE__, __VA_ARGS__)
/* Prints a call, its result and its error. */
#define CALL(call)                                                                                                     \
    ({                                                                                                                 \
        errno = 0;                                                                                                     \
        long result_ = (long)(call);                                                                                   \
        printf("%d: %s = %ld %s\n", __LINE__, #call, result_, result_ == -1 ? strerror(errno) : "");                   \
        result_;                                                                                                       \
    })
/* As above, for descriptors, without their numbers. */
#define OPEN(call)                                                                                                     \
    ({                                                                                                                 \
        errno = 0;                                                                                                     \
        int fd_ = (call);                                                                                              \
        printf("%d: %s %s\n", __LINE__, #call, fd_ < 0 ? strerror(errno) : "opened");                                  \
        fd_;                                                                                                           \
    })

/* Prints whether a call failed, and its error. */
#define FAILS(failed)                                                                                                  \
    ({                                                                                                                 \
        errno = 0;                                                                                                     \
        int failed_ = (failed);                                                                                        \
        SAY("%s: %d %s", #failed, failed_, strerror(errno));                                                           \
    })

static void reading(void) {
    int fd = OPEN(open(at("a.bin"), O_RDONLY));
    ssize_t total = 0, count;
    while ((count = read(fd, big + total, 100000)) > 0) total += count;
    SAY("read %zd sum %lx", total, sum(big, total));
    char buf[1000];
    CALL(read(fd, buf, sizeof buf));
    CALL(pread(fd, buf, 1000, 12345));
    SAY("%lx", sum(buf, 1000));
    CALL(pread(fd, buf, 1000, 2999990));
    CALL(pread(fd, buf, 1000, 5000000));
    CALL(pread(fd, buf, 1000, -1));
    CALL(pread(fd, buf, 0, 0));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(lseek(fd, -10, SEEK_END));
    CALL(read(fd, buf, 100));
    CALL(lseek(fd, 7, SEEK_SET));
    CALL(lseek(fd, 3, SEEK_CUR));
    CALL(lseek(fd, -11, SEEK_CUR));
    CALL(lseek(fd, -1, SEEK_SET));
    CALL(lseek(fd, 0, 77));
    CALL(lseek(fd, 9000000, SEEK_SET));
    CALL(read(fd, buf, 10));
    CALL(lseek(fd, 3000001, SEEK_HOLE));
    CALL(lseek(fd, 100, SEEK_DATA));
    CALL(lseek(fd, 100, SEEK_HOLE));
    char one[7], two[4093];
    struct iovec parts[] = {{one, sizeof one}, {two, sizeof two}};
    CALL(lseek(fd, 50, SEEK_SET));
    CALL(readv(fd, parts, 2));
    SAY("%lx %lx", sum(one, sizeof one), sum(two, sizeof two));
    CALL(preadv(fd, parts, 2, 2999990));
    CALL(readv(fd, parts, count < 0 ? 2 : 2000));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(write(fd, "x", 1) == 1);
    CALL(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    CALL(posix_fadvise(fd, 0, 100000, POSIX_FADV_WILLNEED));
    CALL(posix_fadvise(fd, 0, 0, 99));
    CALL(readahead(fd, 0, 4096));
    CALL(close(fd));
    CALL(read(fd, buf, 1));
    CALL(close(fd));
}

static void names(void) {
    OPEN(open(at("none"), O_RDONLY));
    OPEN(open(at("a.bin/x"), O_RDONLY));
    OPEN(open(at("a.bin"), O_RDONLY | O_DIRECTORY));
    OPEN(open(at("link"), O_RDONLY | O_NOFOLLOW));
    OPEN(open(at("a.bin"), O_RDONLY | O_CREAT | O_EXCL, 0600));
    OPEN(open(at("sub"), O_WRONLY));
    CALL(close(OPEN(open(at("link"), O_RDONLY))));
    CALL(close(OPEN(open(at("sub/../sub/./t.txt"), O_RDONLY))));
    struct stat found;
    struct statx wide;
    const char *paths[] = {"a.bin", "sub", "link", "none", "a.bin/x", "empty", "sub/t.txt", "dangling", "sublink/t.txt"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        memset(&found, 0, sizeof found);
        CALL(stat(at(paths[i]), &found));
        SAY("%s %o %ld %ld", paths[i], found.st_mode & S_IFMT, S_ISREG(found.st_mode) ? (long)found.st_size : 0,
            (long)found.st_mtime);
        memset(&found, 0, sizeof found);
        CALL(lstat(at(paths[i]), &found));
        SAY("%o", found.st_mode & S_IFMT);
        CALL(fstatat(AT_FDCWD, at(paths[i]), &found, AT_SYMLINK_NOFOLLOW));
        memset(&wide, 0, sizeof wide);
        CALL(statx(AT_FDCWD, at(paths[i]), 0, STATX_BASIC_STATS, &wide));
        SAY("%o %ld", wide.stx_mode & S_IFMT, S_ISREG(wide.stx_mode) ? (long)wide.stx_size : 0);
        // A call that succeeds leaves errno alone.
        errno = E2BIG;
        int is_found = fstatat(AT_FDCWD, at(paths[i]), &found, 0) == 0;
        SAY("%d", !is_found || errno == E2BIG);
        CALL(access(at(paths[i]), F_OK));
        CALL(access(at(paths[i]), R_OK));
        CALL(faccessat(AT_FDCWD, at(paths[i]), R_OK, 0));
        char buf[100];
        CALL(readlink(at(paths[i]), buf, sizeof buf));
        char *real = realpath(at(paths[i]), NULL);
        SAY("%s", real ? real + strlen(root) : strerror(errno));
        free(real);
    }
    CALL(access(at("a.bin"), X_OK));
    CALL(access(at("run.sh"), X_OK));
    int fd = OPEN(open(at("a.bin"), O_RDONLY));
    CALL(fstat(fd, &found));
    SAY("%ld %o", (long)found.st_size, found.st_mode & S_IFMT);
    struct stat same;
    stat(at("link"), &same);
    SAY("%d", same.st_ino == found.st_ino && same.st_dev == found.st_dev);
    CALL(fstatat(fd, "", &found, AT_EMPTY_PATH));
    CALL(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &wide));
    SAY("%ld", (long)wide.stx_size);
    close(fd);
}

static void descriptors(void) {
    int fd = OPEN(open(at("a.bin"), O_RDONLY | O_CLOEXEC)), other;
    char buf[100];
    CALL(fcntl(fd, F_GETFD));
    CALL(fcntl(fd, F_GETFL) & O_ACCMODE);
    CALL((other = dup(fd)) < 0);
    CALL(fcntl(other, F_GETFD));
    CALL(lseek(fd, 100, SEEK_SET));
    CALL(read(other, buf, 10));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(dup2(fd, 200));
    CALL(pread(200, buf, 100, 5));
    SAY("%lx", sum(buf, 100));
    CALL(dup3(fd, 201, O_CLOEXEC));
    CALL(fcntl(201, F_GETFD));
    CALL(fcntl(fd, F_DUPFD, 300));
    CALL(fcntl(fd, F_DUPFD_CLOEXEC, 300));
    CALL(pread(301, buf, 100, 6));
    CALL(dup2(0, 200));
    CALL(pread(200, buf, 1, 0) == 1);
    CALL(close_range(201, 301, 0));
    CALL(read(300, buf, 1));
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    CALL(fcntl(fd, F_SETLK, &lock));
    lock.l_type = F_WRLCK;
    CALL(fcntl(fd, F_SETLK, &lock));
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    CALL(poll(&ready, 1, 0));
    CALL(dup(77777));
    CALL(close(other));
    CALL(read(fd, buf, 10));
    /* A descriptor closed by a child of vfork stays open in the parent. */
    pid_t child = vfork();
    if (child == 0) {
        close(fd);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    CALL(pread(fd, buf, 10, 0));
    /* A program that inherits it reads it and moves its offset. */
    CALL(lseek(fd, 2999900, SEEK_SET));
    fflush(stdout);
    if ((child = fork()) == 0) {
        dup2(fd, 0);
        execlp("sha1sum", "sha1sum", NULL);
        _exit(9);
    }
    int status;
    waitpid(child, &status, 0);
    SAY("ended %d", status);
    CALL(lseek(fd, 0, SEEK_CUR));
    fflush(stdout);
    SAY("%d", system("sha1sum < $ROOT/sub/t.txt; while read line; do echo got $line; done < $ROOT/sub/t.txt"));
    close(fd);
}

/* A program that assumes its descriptors' numbers, as shells do. */
static void numbers(void) {
    char buf[10];
    int saved = fcntl(0, F_DUPFD, 10);
    close(0);
    int fd = open(at("a.bin"), O_RDONLY);
    SAY("%d", fd);
    for (int to = 30; to < 200; to++) CALL(dup2(fd, to));
    for (int to = 30; to < 200; to++) CALL(pread(to, buf, 10, to));
    SAY("%d", open(at("sub/t.txt"), O_RDONLY));
    for (int to = 30; to < 200; to++) CALL(close(to));
    CALL(dup2(saved, 0));
}

static void streams(void) {
    FILE *file = fopen(at("sub/t.txt"), "r");
    char line[100];
    SAY("%s", fgets(line, sizeof line, file));
    SAY("%ld", ftell(file));
    SAY("%c", getc(file));
    SAY("%d", fseek(file, -3, SEEK_END));
    SAY("%zu %d", fread(line, 1, 100, file), feof(file));
    struct stat found;
    CALL(fstat(fileno(file), &found));
    SAY("%ld", (long)found.st_size);
    rewind(file);
    int number;
    SAY("%d", fscanf(file, "hello %d", &number));
    CALL(fclose(file));
    file = fopen(at("a.bin"), "rbe");
    SAY("%zu %lx", fread(big, 1, sizeof big, file), sum(big, 3000001));
    CALL(fclose(file));
    file = fdopen(open(at("a.bin"), O_RDONLY), "r");
    SAY("%d %zu", fseek(file, 1000, SEEK_SET), fread(line, 1, 100, file));
    CALL(fclose(file));
    FAILS(fopen(at("none"), "r") == NULL);
    FAILS(fopen(at("a.bin"), "q") == NULL);
}

static sigjmp_buf caught;

static void catch(int signal) {
    siglongjmp(caught, signal);
}

/* The byte, or the negative number of the signal raised by the access. */
static int touch(const volatile unsigned char *byte) {
    int signal = sigsetjmp(caught, 1);
    return signal ? -signal : *byte;
}

static void memory(void) {
    signal(SIGBUS, catch);
    signal(SIGSEGV, catch);
    int fd = open(at("a.bin"), O_RDONLY);
    const size_t size = 3000001, pages = 733 * 4096;
    unsigned char *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    unsigned char *own = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    unsigned char *part = mmap(NULL, 100000, PROT_READ, MAP_PRIVATE, fd, 4096 * 10);
    unsigned char *more = mmap(NULL, pages + 8192, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    unsigned char *behind = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, pages + 4096);
    CALL(close(fd));
    SAY("%lx %lx %lx", sum(map, size), sum(own, size), sum(part, 100000));
    SAY("%d %d %d %d", touch(more + size - 1), touch(more + size), touch(more + pages), touch(more + pages + 8191));
    SAY("%d %d", touch(behind), touch(behind + 8191));
    own[5] ^= 255;
    own[2000000] ^= 255;
    SAY("%lx %d", sum(own, size), map[5] == (own[5] ^ 255));
    CALL(madvise(map, size, MADV_WILLNEED));
    CALL(madvise(map, size, MADV_RANDOM));
    CALL(madvise(map, size, MADV_SEQUENTIAL));
    CALL(madvise(map, size, MADV_NORMAL));
    CALL(madvise(map + 1, size, MADV_NORMAL));
    CALL(madvise(own, 4096, MADV_DONTNEED));
    SAY("%d %d", own[5] == map[5], own[2000000] == map[2000000]);
    own[6] ^= 255;
    CALL(posix_madvise(map, size, POSIX_MADV_DONTNEED));
    /* A child has all of it, and its own copy of modified pages. */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        own[7] ^= 255;
        SAY("child %lx %lx %lx %d", sum(map, size), sum(own, size), sum(part, 100000), touch(more + pages));
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    SAY("ended %d", status);
    SAY("%lx %lx", sum(map, size), sum(own, size));
    /* Holes, and the remaining pages around them. */
    CALL(munmap(map + 8192, 4096));
    SAY("%d %d %d", touch(map + 8191), touch(map + 8192), touch(map + 12288));
    CALL(munmap(map, 8192));
    SAY("%d %d", touch(map), touch(map + 12288));
    CALL(munmap(map, size));
    SAY("%d", touch(map + 12288));
    CALL(munmap(own, size));
    CALL(munmap(part, 100000));
    CALL(munmap(more, pages + 8192));
    CALL(munmap(behind, 8192));
    fd = open(at("a.bin"), O_RDONLY);
    FAILS(mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
    FAILS(mmap(NULL, 10, PROT_READ, MAP_SHARED, fd, 10) == MAP_FAILED);
    FAILS(mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    FAILS(mmap(NULL, 10, PROT_READ, 0, fd, 0) == MAP_FAILED);
    /* A map inside other memory, and other memory inside a map. */
    unsigned char *room = mmap(NULL, 40960, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(room, 7, 40960);
    SAY("%d", mmap(room + 8192, 12288, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 8192) == room + 8192);
    SAY("%d %lx %d", room[8191], sum(room + 8192, 12288), room[20480]);
    SAY("%d", mmap(room + 12288, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == room + 12288);
    SAY("%lx %d %lx", sum(room + 8192, 4096), room[12288], sum(room + 16384, 4096));
    CALL(munmap(room, 40960));
    map = mmap(NULL, 20480, PROT_READ, MAP_SHARED, fd, 0);
    SAY("%d", mremap(map, 20480, 8192, 0) == map);
    SAY("%lx %d", sum(map, 8192), touch(map + 8192));
    CALL(mprotect(map, 4096, PROT_NONE));
    SAY("%d %d", touch(map), touch(map + 4096));
    CALL(mprotect(map, 4096, PROT_READ));
    SAY("%d", touch(map));
    CALL(munmap(map, 8192));
    close(fd);
}

static int by_name(const void *one, const void *other) {
    return strcmp(*(char **)one, *(char **)other);
}

static void list(DIR *directory) {
    char *names[20];
    size_t count = 0;
    struct dirent *entry;
    while ((entry = readdir(directory)) != NULL && count < 20)
        if (asprintf(&names[count++], "%s/%d", entry->d_name, entry->d_type) < 0) abort();
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 0; i < count; i++) SAY("entry %s", names[i]);
}

static void directories(void) {
    DIR *directory = opendir(root);
    list(directory);
    rewinddir(directory);
    list(directory);
    int fd = dirfd(directory);
    struct stat found;
    CALL(fstatat(fd, "sub/t.txt", &found, 0));
    SAY("%ld", (long)found.st_size);
    int file = OPEN(openat(fd, "sub/t.txt", O_RDONLY));
    char buf[100];
    CALL(read(file, buf, 100));
    CALL(close(file));
    CALL(faccessat(fd, "none", F_OK, 0));
    CALL(readlinkat(fd, "link", buf, 100));
    CALL(read(fd, buf, 1) < 0);
    SAY("%d", mmap(NULL, 10, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
    CALL(closedir(directory));
    CALL(read(fd, buf, 1));
    directory = fdopendir(OPEN(open(at("sub"), O_RDONLY | O_DIRECTORY)));
    list(directory);
    CALL(closedir(directory));
    FAILS(opendir(at("a.bin")) == NULL);
    FAILS(opendir(at("none")) == NULL);
}

static void *many_reads(void *argument) {
    uintptr_t number = (uintptr_t)argument, hash = 0;
    int fd = open(at("a.bin"), O_RDONLY);
    char buf[1000];
    for (size_t i = 0; i < 300; i++) {
        off_t offset = (number * 7919 + i * 104729) % 3000000;
        ssize_t count = pread(fd, buf, sizeof buf, offset);
        hash ^= sum(buf, count) + i;
    }
    close(fd);
    return (void *)hash;
}

static void threads(void) {
    pthread_t threads[8];
    for (uintptr_t i = 0; i < 8; i++) pthread_create(&threads[i], NULL, many_reads, (void *)i);
    for (size_t i = 0; i < 8; i++) {
        void *hash;
        pthread_join(threads[i], &hash);
        SAY("%lx", (unsigned long)hash);
    }
}

int main(int count, char **arguments) {
    root = count > 1 ? arguments[1] : ".";
    setenv("ROOT", root, 1);
    reading();
    names();
    descriptors();
    numbers();
    streams();
    memory();
    directories();
    threads();
    return 0;
}
