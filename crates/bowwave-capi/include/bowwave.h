/*
 * bowwave.h - files of any store (a folder, HTTP, S3, a slow device), read and mapped through a page cache with
 * readahead; and memory that may be larger than memory.
 *
 *     bowwave_store *store = bowwave_open("https://example.org/data/", "cache=1GiB");
 *     bowwave_region *region = bowwave_map(store, "model.bin", 0, 0, 0);
 *     if (region == NULL) { fprintf(stderr, "%s\n", bowwave_last_error()); ... }
 *     const unsigned char *bytes = bowwave_region_address(region);      // touch them: they are fetched
 *     bowwave_unmap(region);
 *     bowwave_close(store);
 *
 * Link with -lbowwave. Linux; mapping wants Linux 6.6 or later with userfaultfd.
 *
 * Errors. Functions that return a pointer return NULL, the others a negative error number of errno.h, such as -ENOENT;
 * bowwave_last_error() then says what happened, in one line, and what to do about it. Nothing is printed, but why a touch
 * of mapped memory ends in a signal.
 *
 * Threads. Everything may be called from any thread, and any number of threads may use one handle at once. A handle is
 * closed once, when nobody uses it any more; NULL may be closed. A store may be closed before its files and regions: it
 * lives on until they are closed.
 *
 * Fork. A child of fork() must not use handles of its parent, and does not have its regions' memory; it may open its own
 * after exec().
 *
 * Strings are UTF-8 and end with a zero byte; paths may be any bytes.
 */
#ifndef BOWWAVE_H
#define BOWWAVE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A store: a folder, a bucket, a web server, or one file, behind a cache. */
typedef struct bowwave_store bowwave_store;
/* An open file of a store. Streams that read in different places should have a handle each: readahead follows a handle. */
typedef struct bowwave_file bowwave_file;
/* A file, or a part of one, as memory. */
typedef struct bowwave_region bowwave_region;

/* A budget of memory, and a file for what does not fit into it. */
typedef struct bowwave_swap bowwave_swap;
/* Memory that may be larger than the budget. */
typedef struct bowwave_memory bowwave_memory;

/* How bytes will be read or touched. */
#define BOWWAVE_NORMAL 0     /* nothing is known; of a region or file as a whole */
#define BOWWAVE_SEQUENTIAL 1 /* in order; of a region or file as a whole */
#define BOWWAVE_RANDOM 2     /* in no order: no readahead; of a region or file as a whole */
#define BOWWAVE_WILLNEED 3   /* soon: fetch them now; returns at once */
#define BOWWAVE_DONTNEED 4   /* no more: drop them */
#define BOWWAVE_NOREUSE 5    /* each once: drop them behind the reader */

/* For bowwave_map: the program may write to the memory. What it writes stays its own, in memory, beyond the cache's limit. */
#define BOWWAVE_COPY_ON_WRITE 1u
/*
 * For bowwave_map: the thread that touches a page serves itself, within a SIGBUS, and no other is woken or started. Touching a
 * page that is there takes half of the time. System calls return EFAULT for pages that are not there, whatever the
 * privileges; the program must not handle, block or wait for SIGBUS after that, nor touch the memory while it holds a lock
 * of its allocator.
 */
#define BOWWAVE_IN_THREAD 2u

/* What a cache has done so far, over all of its stores. Pages unless the name says otherwise. */
struct bowwave_counters {
    uint64_t page_bytes;       /* bytes of a page */
    uint64_t frames;           /* pages that fit */
    uint64_t frames_used;      /* pages that are there or on their way */
    uint64_t reads;            /* read calls and touches */
    uint64_t accesses;         /* wanted by them */
    uint64_t hits;             /* of these: there */
    uint64_t late;             /* of these: on their way */
    uint64_t misses;           /* of these: missing */
    uint64_t pages_readahead;  /* read ahead */
    uint64_t pages_used;       /* of these: used */
    uint64_t pages_wasted;     /* of these: dropped unused */
    uint64_t pages_evicted;    /* dropped for others */
    uint64_t requests;         /* requests to the stores */
    uint64_t requests_failed;  /* of these: failed */
    uint64_t retries;          /* tried again */
    uint64_t bytes_fetched;    /* bytes that came from the stores */
    uint64_t pages_planned;    /* read ahead because a plan led there; part of pages_readahead */
    uint64_t pages_given_up;   /* of these: not used when their reader was far beyond, had left the plan or was closed */
};

/* Bytes of a file that will be read. */
struct bowwave_range {
    uint64_t offset; /* the first */
    uint64_t len;    /* how many; 0: to the end */
};

/* What has happened in a region so far. */
struct bowwave_region_counters {
    uint64_t faults;         /* touches of pages that were not mapped */
    uint64_t pages_mapped;   /* pages mapped */
    uint64_t pages_unmapped; /* pages unmapped to make room, or to see whether they are touched again */
    uint64_t pages_poisoned; /* pages that could not be had: touching them is a SIGBUS */
};

/* What a swap has done so far, over all of its memory. Pages unless the comment says otherwise. */
struct bowwave_swap_counters {
    uint64_t page_bytes;          /* bytes of a page */
    uint64_t frames;              /* pages that fit into memory */
    uint64_t frames_used;         /* pages that are there or on their way */
    uint64_t slots;               /* pages that fit into the spill */
    uint64_t slots_used;          /* pages that it has */
    uint64_t blocked;             /* 1 if the spill takes nothing: touches that need more memory wait until it does */
    uint64_t serves_system_calls; /* 1 if system calls may be handed memory that is out; else they return EFAULT */
    uint64_t minor_faults;        /* touches of pages that were in memory or never touched before */
    uint64_t major_faults;        /* touches of pages that were out */
    uint64_t late;                /* touches of pages that readahead was bringing */
    uint64_t swap_ra;             /* read ahead */
    uint64_t swap_ra_hit;         /* of these: seen to be touched */
    uint64_t mapped_ahead;        /* of these: mapped before they were touched, whether they were is not known */
    uint64_t wasted;              /* of these: left without having been touched */
    uint64_t swap_in;             /* read */
    uint64_t swap_out;            /* written */
    uint64_t dropped;             /* left without a write, since the spill had them */
    uint64_t zero_out;            /* left without a write, since they were all zeros */
    uint64_t read_errors;         /* reads that failed, after retries */
    uint64_t write_errors;        /* writes that failed, after retries; their pages stayed in memory */
    uint64_t requests;            /* requests to the spill */
    uint64_t retries;             /* tried again */
    uint64_t bytes_read;          /* bytes that came from it */
    uint64_t bytes_written;       /* bytes that went to it */
};

/* The version of the library, such as "0.1.0". */
const char *bowwave_version(void);

/*
 * What went wrong in the last call of this thread that failed: one line, "" if none has. Valid until the next call that
 * fails in this thread.
 */
const char *bowwave_last_error(void);

/* Its error number, positive as in errno.h; 0 if none has failed. */
int bowwave_last_errno(void);

/*
 * Opens the store at a URL behind a cache of its own.
 *
 * url: a path, file:///PATH, http(s)://HOST/PATH, s3://BUCKET/PREFIX, gs://, az://, pattern:/SIZE (made up),
 *     emulate:PROFILE:URL (any of these, as slow as a device).
 * options: KEY=VALUE separated by spaces, or NULL:
 *     cache=1GiB             memory for pages; a quarter of what there is
 *     page_size=64KiB        bytes of a page; 4KiB
 *     ra_pages=4096          longest readahead window, in pages; what suits the store
 *     ahead_max=64MiB        what may be on its way ahead of readers at a time; what memory has room for
 *     policy=range           who decides on readahead: stream (the default), none, legacy, ondemand, ondemand-patch, linux,
 *                            range, range-literal
 *     range_bytes=1MiB, range_whole=4MiB, range_max=256MiB        the policy range's clusters, small files, largest window
 *     range_clusters=mended what range makes of clusters of touches: suited (the default: learned in maps), mended, learned, literal, before
 *     shards=4               parts of the cache with a lock each; one for each processor
 *     scheduler=deadline     in which order the store is asked: noop, deadline, deadline-rw, deadline-literal; knobs
 *                            follow a colon, as in deadline:starved=4,promotion=0
 *     device_depth=16, connections=64, retries=6, timeout=30s     how it is asked
 *     hedge=5                of hundred reads, how many at most are asked for again because they are late; 0
 *     endpoint=URL, region=NAME, allow_http=yes, anonymous=yes    object stores
 *
 * EINVAL: the URL or an option cannot be understood; else as the store says.
 */
bowwave_store *bowwave_open(const char *url, const char *options);

/* Opens another store behind the cache of a store that is open: they share its memory and its options. */
bowwave_store *bowwave_open_beside(const bowwave_store *store, const char *url);

/* Closes a store. */
void bowwave_close(bowwave_store *store);

/* Opens a file of a store for reading. path: below the store; NULL or "" for a store that is one file. */
bowwave_file *bowwave_file_open(const bowwave_store *store, const char *path);

/* Closes a file. What was cached of it stays. */
void bowwave_file_close(bowwave_file *file);

/* Bytes of a file. */
int64_t bowwave_file_size(const bowwave_file *file);

/*
 * Reads up to len bytes from an offset into buf, as pread(2): how many there were before the end of the file, 0 from the
 * end on. Never less for any other reason.
 *
 * ESTALE: the object is no longer the one that was opened; else as the store says, after retries. What buf then holds is
 * unspecified.
 */
int64_t bowwave_read_at(const bowwave_file *file, uint64_t offset, void *buf, size_t len);

/* Says how len bytes from an offset will be read (BOWWAVE_NORMAL ...). len 0: to the end. */
int bowwave_file_advise(const bowwave_file *file, uint64_t offset, uint64_t len, int advice);

/*
 * Says which bytes will be read through this file, in order, behind those that it was told before: parts of a file of
 * columns, tensors, records drawn beforehand. They are fetched from now on, as far ahead as the readers need and memory
 * allows, and nothing beyond them. Who leaves some out, or takes them in another order, is followed. count 0: the plan
 * ends; what is on its way and nobody waits for is called back.
 *
 * EINVAL: ranges is NULL and count is not 0, or more than 2^20 ranges wait to be read (neighbours in order are one);
 * then none of them are taken.
 */
int bowwave_file_plan(const bowwave_file *file, const struct bowwave_range *ranges, size_t count);

/*
 * Maps a file, or a part of it, into memory. Pages are fetched when they are touched, and go when the cache needs room.
 *
 * offset: a multiple of page_size. len: 0 for all that is left. flags: 0, or any of BOWWAVE_COPY_ON_WRITE and
 * BOWWAVE_IN_THREAD.
 *
 * A page that cannot be had is never zeros: bowwave_region_populate and bowwave_region_read return the error; a touch, after
 * the store's retries, says why on standard error and ends in a SIGBUS. System calls that are handed memory whose pages are
 * not there return EFAULT unless the process may serve the kernel's touches (root, CAP_SYS_PTRACE, the sysctl
 * vm.unprivileged_userfaultfd, /dev/userfaultfd): populate them first.
 *
 * EINVAL: the part is empty, begins within a page or ends beyond the file; EPERM, ENOSYS: no userfaultfd; else as the
 * store says.
 */
bowwave_region *bowwave_map(const bowwave_store *store, const char *path, uint64_t offset, uint64_t len, unsigned flags);

/* Unmaps it. Nobody may touch the memory any more. */
void bowwave_unmap(bowwave_region *region);

/* The first byte; read-only memory unless BOWWAVE_COPY_ON_WRITE was given. NULL for NULL. */
void *bowwave_region_address(const bowwave_region *region);

/* Bytes; 0 for NULL. */
size_t bowwave_region_size(const bowwave_region *region);

/* Fetches and maps len bytes from an offset: touching them later is no fault, unless the cache needs the room before. */
int bowwave_region_populate(const bowwave_region *region, uint64_t offset, uint64_t len);

/* Copies len bytes from an offset of the region as the file has them, without touching the memory. EINVAL: beyond the end. */
int bowwave_region_read(const bowwave_region *region, uint64_t offset, void *buf, size_t len);

/* Says how len bytes from an offset will be touched. len 0: to the end. */
int bowwave_region_advise(const bowwave_region *region, uint64_t offset, uint64_t len, int advice);

/*
 * What a store's cache has done so far. bytes: sizeof *counters, so that programs and libraries of different ages go
 * together: what the library does not know is zeroed.
 */
int bowwave_store_counters(const bowwave_store *store, struct bowwave_counters *counters, size_t bytes);

/* What has happened in a region so far. bytes: sizeof *counters. */
int bowwave_region_counters(const bowwave_region *region, struct bowwave_region_counters *counters, size_t bytes);

/*
 * Opens a budget of memory_bytes of memory (0: half of what is available; at least 4 MiB) over a spill of spill_bytes.
 *
 * spill: a folder, for a file without a name in it; or a file, empty or used for this before, for one process at a time.
 * The room is reserved at once. What is in memory gets there in the clear; the file is readable for its owner alone.
 *
 * EINVAL: the room is not on the disk, the file holds something else, the memory is too small. EPERM: this process may not use
 * userfaultfd.
 */
bowwave_swap *bowwave_swap_open(const char *spill, uint64_t spill_bytes, uint64_t memory_bytes);

/* Closes it. Its memory keeps what it needs. */
void bowwave_swap_close(bowwave_swap *swap);

/*
 * Memory of len bytes, all zeros, at the start of a page. It costs nothing until it is written to. No write is lost: while the spill is full
 * or failing, touches that need more memory wait, and standard error says so. A page that cannot be brought back is a SIGBUS.
 *
 * System calls that are handed the memory work if serves_system_calls says so (root, the sysctl vm.unprivileged_userfaultfd, or
 * leave to open /dev/userfaultfd); else they return EFAULT for pages that are out.
 */
bowwave_memory *bowwave_memory_new(const bowwave_swap *swap, size_t len);

/* Gives it back. */
void bowwave_memory_free(bowwave_memory *memory);

/* Where it begins. */
void *bowwave_memory_address(const bowwave_memory *memory);

/* How many bytes it has; 0 for NULL. */
size_t bowwave_memory_size(const bowwave_memory *memory);

/*
 * Says how len bytes from an offset will be touched. len 0: to the end. BOWWAVE_DONTNEED gives up what whole pages hold: they are
 * zeros from now on. BOWWAVE_NOREUSE writes them out now.
 */
int bowwave_memory_advise(const bowwave_memory *memory, size_t offset, size_t len, int advice);

/* What a swap has done so far. bytes: sizeof *counters. */
int bowwave_swap_counters(const bowwave_swap *swap, struct bowwave_swap_counters *counters, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
