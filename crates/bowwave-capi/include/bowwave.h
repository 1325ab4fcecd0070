/*
 * bowwave.h - files of any store (a directory, HTTP, S3, a slow device), read and mapped through a
 * page cache with readahead; and memory that may be larger than RAM.
 *
 *     bowwave_store *store = bowwave_open("https://example.org/data/", "cache=1GiB");
 *     bowwave_region *region = bowwave_map(store, "model.bin", 0, 0, 0);
 *     if (region == NULL) { fprintf(stderr, "%s\n", bowwave_last_error()); ... }
 *     const unsigned char *bytes = bowwave_region_address(region); // an access fetches the page
 *     bowwave_unmap(region);
 *     bowwave_close(store);
 *
 * Link with -lbowwave. Linux; mapping needs Linux 6.6 or later with userfaultfd.
 *
 * Errors. Functions that return a pointer return NULL; the others return a negative error number of
 * errno.h, such as -ENOENT. bowwave_last_error() then returns the cause and the remedy in one line.
 * The library prints nothing, except why an access to mapped memory raises a signal.
 *
 * Threads. All functions may be called from any thread, and any number of threads may share a
 * handle. A handle is closed once, when it is no longer in use; NULL may be closed. A store may be
 * closed before its files and regions: it stays open until they are closed.
 *
 * Fork. A child of fork() must not use its parent's handles, and does not have the memory of its
 * regions; it may open its own after exec().
 *
 * Strings are NUL-terminated UTF-8; paths may be any bytes.
 */
#ifndef BOWWAVE_H
#define BOWWAVE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A store: a directory, a bucket, a web server, or one file, behind a cache. */
typedef struct bowwave_store bowwave_store;
/*
 * An open file of a store. Streams that read different parts should have a handle each: each handle
 * has its own readahead.
 */
typedef struct bowwave_file bowwave_file;
/* A file, or a part of one, as memory. */
typedef struct bowwave_region bowwave_region;

/* A memory budget, and a file for pages that do not fit. */
typedef struct bowwave_swap bowwave_swap;
/* Memory that may be larger than the budget. */
typedef struct bowwave_memory bowwave_memory;

/* The control channel of this process, for the command bowwave. */
typedef struct bowwave_control bowwave_control;

/* How bytes will be accessed. */
#define BOWWAVE_NORMAL 0     /* no advice; for a whole region or file */
#define BOWWAVE_SEQUENTIAL 1 /* sequentially; for a whole region or file */
#define BOWWAVE_RANDOM 2     /* randomly, without readahead; for a whole region or file */
#define BOWWAVE_WILLNEED 3   /* soon: fetch now; returns immediately */
#define BOWWAVE_DONTNEED 4   /* not again: drop now */
#define BOWWAVE_NOREUSE 5    /* once: drop behind the reader */

/* Priorities of requests, as the classes of ioprio_set(2). */
#define BOWWAVE_REALTIME 1   /* before all others */
#define BOWWAVE_BESTEFFORT 2 /* the default */
#define BOWWAVE_IDLE 3       /* when no other waits, or after too long a wait */

/*
 * For bowwave_map: the program may write to the memory. Writes go to private copies, beyond the
 * cache's limit.
 */
#define BOWWAVE_COPY_ON_WRITE 1u
/*
 * For bowwave_map: a faulting thread serves itself, in a SIGBUS handler; no other thread is woken
 * or started. This halves the time of a fault on a cached page. System calls return EFAULT for
 * missing pages, whatever the privileges. The program must not handle, block or wait for SIGBUS
 * after that, nor access the memory while it holds a lock of its allocator.
 */
#define BOWWAVE_IN_THREAD 2u

/* Counters of a cache, over all of its stores. In pages unless the name says otherwise. */
struct bowwave_counters {
    uint64_t page_bytes;       /* page size in bytes */
    uint64_t frames;           /* capacity */
    uint64_t frames_used;      /* cached or in flight */
    uint64_t reads;            /* read calls and page faults */
    uint64_t accesses;         /* requested by them */
    uint64_t hits;             /* of these: cached */
    uint64_t late;             /* of these: in flight */
    uint64_t misses;           /* of these: missing */
    uint64_t pages_readahead;  /* read ahead */
    uint64_t pages_used;       /* of these: used */
    uint64_t pages_wasted;     /* of these: evicted unused */
    uint64_t pages_evicted;    /* evicted for others */
    uint64_t requests;         /* requests to the stores */
    uint64_t requests_failed;  /* of these: failed */
    uint64_t retries;          /* retries */
    uint64_t bytes_fetched;    /* bytes read from the stores */
    uint64_t pages_planned;    /* read ahead by a read plan; part of pages_readahead */
    uint64_t pages_abandoned;  /* of these: abandoned, unused */
};

/* A range of a file that will be read. */
struct bowwave_range {
    uint64_t offset; /* first byte */
    uint64_t len;    /* length; 0: to the end */
};

/* Counters of a region. */
struct bowwave_region_counters {
    uint64_t faults;         /* page faults */
    uint64_t pages_mapped;   /* pages mapped */
    uint64_t pages_unmapped; /* pages unmapped for eviction, or to detect further accesses */
    uint64_t pages_poisoned; /* pages that could not be fetched: an access raises SIGBUS */
};

/* Counters of a swap, over all of its memory. In pages unless the comment says otherwise. */
struct bowwave_swap_counters {
    uint64_t page_bytes;          /* page size in bytes */
    uint64_t frames;              /* capacity of memory */
    uint64_t frames_used;         /* resident or in flight */
    uint64_t slots;               /* capacity of the spill */
    uint64_t slots_used;          /* used pages of the spill */
    uint64_t blocked;             /* 1 if full or failing: accesses may block */
    uint64_t serves_system_calls; /* 0: EFAULT for swapped-out memory */
    uint64_t minor_faults;        /* faults on resident or new pages */
    uint64_t major_faults;        /* faults on swapped-out pages */
    uint64_t late;                /* faults on pages that readahead was reading */
    uint64_t swap_ra;             /* read ahead */
    uint64_t swap_ra_hit;         /* of these: known to be accessed */
    uint64_t mapped_ahead;        /* of these: mapped before an access, which is then not seen */
    uint64_t wasted;              /* of these: evicted without an access */
    uint64_t swap_in;             /* read */
    uint64_t swap_out;            /* written */
    uint64_t dropped;             /* evicted without a write, because the spill had them */
    uint64_t zero_out;            /* evicted without a write, because they were all zeros */
    uint64_t read_errors;         /* reads that failed, after retries */
    uint64_t write_errors;        /* writes that failed, after retries; pages stay */
    uint64_t requests;            /* requests to the spill */
    uint64_t retries;             /* retries */
    uint64_t bytes_read;          /* bytes read from the spill */
    uint64_t bytes_written;       /* bytes written to the spill */
};

/* The version of the library, such as "0.1.0". */
const char *bowwave_version(void);

/*
 * Message of this thread's last failed call: one line, "" if none has failed. Valid until the next
 * failed call of this thread.
 */
const char *bowwave_last_error(void);

/* Its error number, positive as in errno.h; 0 if none has failed. */
int bowwave_last_errno(void);

/*
 * Opens the store at a URL with its own cache.
 *
 * url: a path, file:///PATH, http(s)://HOST/PATH, s3://BUCKET/PREFIX, gs://, az://, pattern:/SIZE
 *     (synthetic), emulate:PROFILE:URL (any of these at the speed of a device).
 * options: KEY=VALUE separated by spaces, or NULL. Default in parentheses:
 *     cache=1GiB             memory for pages (a quarter of the machine's)
 *     page_size=64KiB        bytes of a page (4KiB)
 *     ra_pages=4096          longest readahead window in pages; 0: none (depends on the store)
 *     ahead_max=64MiB        readahead in flight for all readers (depends on memory)
 *     policy=range           readahead policy: stream (default), none, legacy, ondemand,
 *                            ondemand-patch, linux, range, range-literal
 *     range_bytes=1MiB, range_whole=4MiB, range_max=256MiB
 *                            clusters, small files and largest window of the policy range
 *     range_clusters=fixed   clusters of page faults in the policy range: suited (default: learned
 *                            for mappings), fixed, learned, literal, before
 *     shards=4               partitions of the cache with a lock each (one per processor)
 *     scheduler=deadline     order of requests to the store: noop, deadline, deadline-rw,
 *                            deadline-literal; options follow a colon, as in
 *                            deadline:starved=4,promotion=0
 *     device_depth=16, connections=64, retries=6, timeout=30s
 *                            requests to the store
 *     hedge=5                maximum percentage of late reads that are requested again (0)
 *     endpoint=URL, region=NAME, allow_http=yes, anonymous=yes
 *                            object stores
 *
 * EINVAL: invalid URL or option; otherwise the store's error.
 */
bowwave_store *bowwave_open(const char *url, const char *options);

/* Opens another store that shares the memory and options of an open store's cache. */
bowwave_store *bowwave_open_beside(const bowwave_store *store, const char *url);

/* Closes a store. */
void bowwave_close(bowwave_store *store);

/*
 * Opens a file of a store for reading. path: relative to the store; NULL or "" if the store is one
 * file.
 *
 * Opens the current version. On S3 and Azure with the policy stream, once three other files of a
 * directory were opened, one request lists the directory in the background. If the response is
 * complete, its files of up to 256 KiB are read ahead, and then opened in the version that it shows:
 * at most a second old, or twice the time that the listing took.
 */
bowwave_file *bowwave_file_open(const bowwave_store *store, const char *path);

/* Closes a file. Its cached pages stay. */
void bowwave_file_close(bowwave_file *file);

/* Size of a file in bytes. */
int64_t bowwave_file_size(const bowwave_file *file);

/*
 * Reads up to len bytes from an offset into buf, as pread(2). Returns the number of bytes: fewer
 * than len only at the end of the file, 0 from the end on.
 *
 * ESTALE: the object is no longer the opened version; otherwise the store's error, after retries.
 * The content of buf is then unspecified.
 */
int64_t bowwave_read_at(const bowwave_file *file, uint64_t offset, void *buf, size_t len);

/* Advises how len bytes from an offset will be read (BOWWAVE_NORMAL ...). len 0: to the end. */
int bowwave_file_advise(const bowwave_file *file, uint64_t offset, uint64_t len, int advice);

/*
 * Sets the priority of the requests that this handle causes from now on, and of requests that it
 * comes to wait for (BOWWAVE_REALTIME, BOWWAVE_BESTEFFORT, the default, BOWWAVE_IDLE). EINVAL: no
 * such priority. Only the scheduler deadline knows priorities.
 */
int bowwave_file_priority(const bowwave_file *file, int priority);

/*
 * Announces which bytes will be read through this file, in order, after those announced before:
 * column chunks, tensors, sampled records. They are fetched from now on, as far ahead as readers
 * need and memory allows, and nothing else. Reads may skip ranges or reorder them. count 0: ends
 * the plan; speculative requests in flight are cancelled.
 *
 * EINVAL: ranges is NULL and count is not 0, or more than 2^20 ranges are pending (adjacent ones
 * count as one); then none of them are accepted.
 */
int bowwave_file_plan(const bowwave_file *file, const struct bowwave_range *ranges, size_t count);

/*
 * Maps a file, or a part of it, into memory. Pages are fetched on access, and evicted when the
 * cache needs memory.
 *
 * offset: a multiple of page_size. len: 0 for the rest of the file. flags: 0, or any of
 * BOWWAVE_COPY_ON_WRITE and BOWWAVE_IN_THREAD.
 *
 * A page that cannot be fetched is never zeros: bowwave_region_populate and bowwave_region_read
 * return the error. An access, after the store's retries, prints the cause to standard error and
 * raises SIGBUS. System calls return EFAULT for missing pages, unless the process may serve the
 * kernel's page faults (root, CAP_SYS_PTRACE, the sysctl vm.unprivileged_userfaultfd,
 * /dev/userfaultfd): populate them first.
 *
 * EINVAL: the part is empty, starts within a page or ends beyond the file; EPERM, ENOSYS: no
 * userfaultfd; otherwise the store's error.
 */
bowwave_region *bowwave_map(const bowwave_store *store, const char *path, uint64_t offset, uint64_t len, unsigned flags);

/* Unmaps a region. Its memory must no longer be accessed. */
void bowwave_unmap(bowwave_region *region);

/* Address of the first byte; read-only memory without BOWWAVE_COPY_ON_WRITE. NULL for NULL. */
void *bowwave_region_address(const bowwave_region *region);

/* Size in bytes; 0 for NULL. */
size_t bowwave_region_size(const bowwave_region *region);

/*
 * Fetches and maps len bytes from an offset: later accesses do not fault, unless the cache evicts
 * the pages before.
 */
int bowwave_region_populate(const bowwave_region *region, uint64_t offset, uint64_t len);

/*
 * Copies len bytes of the file from an offset of the region, without page faults. EINVAL: beyond
 * the end.
 */
int bowwave_region_read(const bowwave_region *region, uint64_t offset, void *buf, size_t len);

/* Advises how len bytes from an offset will be accessed. len 0: to the end. */
int bowwave_region_advise(const bowwave_region *region, uint64_t offset, uint64_t len, int advice);

/*
 * Changes a setting of a running store's cache, and of all stores opened beside it: policy, ra_pages,
 * read_ahead_kb, read_ahead_range_kb, max_read_ahead_whole_mb, max_read_ahead_per_file_mb,
 * range_clusters, la_size, persist, dirty_bytes, dirty_background_bytes, dirty_expire_centisecs or
 * a setting of the scheduler. EINVAL: no such key, or a value that does not fit; bowwave_last_error
 * says what fits, and nothing changes.
 */
int bowwave_store_set(const bowwave_store *store, const char *key, const char *value);

/* Writes a setting's value as text with a NUL. EINVAL: no such key, or size is too small. */
int bowwave_store_get(const bowwave_store *store, const char *key, void *value, size_t size);

/*
 * Counters of a store's cache. bytes: sizeof *counters, so that programs and libraries of different
 * versions work together: counters that the library does not know are zeroed.
 */
int bowwave_store_counters(const bowwave_store *store, struct bowwave_counters *counters, size_t bytes);

/* Counters of a region. bytes: sizeof *counters. */
int bowwave_region_counters(const bowwave_region *region, struct bowwave_region_counters *counters, size_t bytes);

/*
 * Opens a swap with memory_bytes of memory and a spill of spill_bytes. memory_bytes: at least 4 MiB;
 * 0 is half of the machine's memory, or of the control group's limit.
 *
 * spill: a directory, for an unnamed file in it; or a file, empty or a former spill, used by one
 * process at a time. Space is allocated immediately. Pages are stored unencrypted; only the owner
 * can read the file.
 *
 * EINVAL: not enough disk space, the file has other content, or the memory is too small. EPERM:
 * this process may not use userfaultfd.
 */
bowwave_swap *bowwave_swap_open(const char *spill, uint64_t spill_bytes, uint64_t memory_bytes);

/*
 * Changes a setting of a running swap. EINVAL: no such key, or a value that does not fit;
 * bowwave_last_error says what fits, and nothing changes.
 *
 * swap.policy: readahead by none, cluster (adjacent slots), vma (adjacent addresses), adaptive (the
 * default), or linux, which is cluster on rotating disks and vma elsewhere.
 * swap.ra_pages: the largest window of adaptive in pages, at least 8.
 * swap.page_cluster: the largest window of vma and cluster as a power of two, as vm.page-cluster.
 */
int bowwave_swap_set(const bowwave_swap *swap, const char *key, const char *value);

/* Writes a setting's value as text with a NUL. EINVAL: no such key, or size is too small. */
int bowwave_swap_get(const bowwave_swap *swap, const char *key, void *value, size_t size);

/* Closes a swap. Its memory stays valid. */
void bowwave_swap_close(bowwave_swap *swap);

/*
 * Allocates len bytes of zeroed, page-aligned memory. It uses no memory until it is written. No
 * write is lost: while the spill is full or failing, accesses that need more memory block, with a
 * message on standard error. A page that cannot be read back raises SIGBUS.
 *
 * System calls may access the memory if serves_system_calls is 1 (root, the sysctl
 * vm.unprivileged_userfaultfd, or permission to open /dev/userfaultfd); otherwise they return
 * EFAULT for swapped-out pages.
 */
bowwave_memory *bowwave_memory_new(const bowwave_swap *swap, size_t len);

/* Frees memory. */
void bowwave_memory_free(bowwave_memory *memory);

/* Address of the first byte. */
void *bowwave_memory_address(const bowwave_memory *memory);

/* Size in bytes; 0 for NULL. */
size_t bowwave_memory_size(const bowwave_memory *memory);

/*
 * Advises how len bytes from an offset will be accessed. len 0: to the end. BOWWAVE_DONTNEED
 * discards whole pages, which then read as zeros. BOWWAVE_NOREUSE writes pages out now.
 */
int bowwave_memory_advise(const bowwave_memory *memory, size_t offset, size_t len, int advice);

/* Counters of a swap. bytes: sizeof *counters. */
int bowwave_swap_counters(const bowwave_swap *swap, struct bowwave_swap_counters *counters, size_t bytes);

/*
 * Serves the control channel of this process: from now on, "bowwave status" lists it, and "bowwave
 * ctl PID" shows and changes its settings. Settings of the cache of a store hold for all stores that
 * share it. store or swap may be NULL, but not both; both stay open until bowwave_serve_end.
 *
 * The channel is a socket in $XDG_RUNTIME_DIR/bowwave, for this user and root, served by a thread
 * without signals. A child of fork() does not serve it. A process may serve up to 16.
 *
 * EINVAL: both are NULL. EACCES: no directory may hold the socket.
 */
bowwave_control *bowwave_serve(const bowwave_store *store, const bowwave_swap *swap);

/* Ends the control channel and removes its socket. */
void bowwave_serve_end(bowwave_control *control);

/*
 * Announces to the mount of bowwave at a directory which files will be opened, in this order: it
 * reads them ahead, as after "bowwave plan". files: count paths below the mount point, with or
 * without it in front. append 1: they follow the list before; 0: they replace it. Returns when the
 * mount has the list.
 *
 * ENOENT: no mount that this user may ask is there. EINVAL: a path that is not in the mount or not
 * UTF-8, or the mount does not read files ahead (only mounts of object stores with --consistency ttl
 * do); files before it may have been announced. ETIMEDOUT: the mount does not respond.
 */
int bowwave_plan(const char *mount, const char *const *files, size_t count, int append);

#ifdef __cplusplus
}
#endif

#endif
