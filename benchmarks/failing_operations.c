/* Lies between a process and the system, and lets the n-th operation fail: a full disk, a broken one, a read-only one, no
   memory, or the end of the process. Operations on files count where their path begins with a given one; allocations
   count from a given size on. Loaded with LD_PRELOAD by failing_operations.py. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_FILES 4096

static long operations, failing;  /* counted so far; which one fails, 0: none */
static int number, armed;         /* the error, or -1: the process is killed */
static long least = 1 << 16;      /* bytes from which an allocation counts */
static char root[1024];
static char ours[MOST_FILES];     /* file descriptors inside the root */
static char last[64];

void faults_arm(const char *folder, long n, int error) {
    snprintf(root, sizeof root, "%s", folder);
    operations = 0, failing = n, number = error, armed = 1;
    last[0] = 0;
}
void faults_disarm(void) { armed = 0; }
long faults_counted(void) { return operations; }
const char *faults_failed(void) { return last; }

static int fails(const char *what) {
    if (!armed || ++operations != failing) return 0;
    snprintf(last, sizeof last, "%s", what);
    if (number < 0) kill(getpid(), SIGKILL);
    errno = number;
    return 1;
}
static int inside(const char *path) { return armed && path && root[0] && strncmp(path, root, strlen(root)) == 0; }
static int is_ours(int file) { return armed && file >= 0 && file < MOST_FILES && ours[file]; }
static int remember(int file, int known) {
    if (file >= 0 && file < MOST_FILES) ours[file] = known;
    return file;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define MODE(flags) mode_t mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list l; va_start(l, flags); mode = va_arg(l, int); va_end(l); }

int open(const char *path, int flags, ...) {
    REAL(open); MODE(flags)
    if (inside(path) && fails("open")) return -1;
    return remember(real(path, flags, mode), inside(path));
}
int open64(const char *path, int flags, ...) {
    REAL(open64); MODE(flags)
    if (inside(path) && fails("open")) return -1;
    return remember(real(path, flags, mode), inside(path));
}
int openat(int folder, const char *path, int flags, ...) {
    REAL(openat); MODE(flags)
    const int known = path[0] == '/' ? inside(path) : is_ours(folder);
    if (known && fails("openat")) return -1;
    return remember(real(folder, path, flags, mode), known);
}
int openat64(int folder, const char *path, int flags, ...) {
    REAL(openat64); MODE(flags)
    const int known = path[0] == '/' ? inside(path) : is_ours(folder);
    if (known && fails("openat")) return -1;
    return remember(real(folder, path, flags, mode), known);
}
int dup(int file) {
    REAL(dup);
    return remember(real(file), is_ours(file));
}
int close(int file) {
    REAL(close);
    remember(file, 0);
    return real(file);
}
ssize_t read(int file, void *to, size_t size) {
    REAL(read);
    if (is_ours(file) && fails("read")) return -1;
    return real(file, to, size);
}
ssize_t write(int file, const void *from, size_t size) {
    REAL(write);
    if (is_ours(file) && fails("write")) return -1;
    return real(file, from, size);
}
ssize_t pwrite64(int file, const void *from, size_t size, off64_t at) {
    REAL(pwrite64);
    if (is_ours(file) && fails("pwrite")) return -1;
    return real(file, from, size, at);
}
size_t fwrite(const void *from, size_t size, size_t count, FILE *file) {
    REAL(fwrite);
    if (is_ours(fileno(file)) && fails("fwrite")) return 0;
    return real(from, size, count, file);
}
int fsync(int file) {
    REAL(fsync);
    if (is_ours(file) && fails("fsync")) return -1;
    return real(file);
}
int ftruncate64(int file, off64_t size) {
    REAL(ftruncate64);
    if (is_ours(file) && fails("ftruncate")) return -1;
    return real(file, size);
}
int rename(const char *from, const char *to) {
    REAL(rename);
    if (inside(to) && fails("rename")) return -1;
    return real(from, to);
}
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    REAL(renameat2);
    if (inside(to) && fails("renameat2")) return -1;
    return real(a, from, b, to, flags);
}
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    if (inside(path) && fails("mkdir")) return -1;
    return real(path, mode);
}
int unlink(const char *path) {
    REAL(unlink);
    if (inside(path) && fails("unlink")) return -1;
    return real(path);
}
int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat);
    if ((path[0] == '/' ? inside(path) : is_ours(folder)) && fails("unlinkat")) return -1;
    return real(folder, path, flags);
}
int rmdir(const char *path) {
    REAL(rmdir);
    if (inside(path) && fails("rmdir")) return -1;
    return real(path);
}
void *mmap64(void *at, size_t size, int protection, int flags, int file, off64_t offset) {
    REAL(mmap64);
    if (is_ours(file) && fails("mmap")) return MAP_FAILED;
    return real(at, size, protection, flags, file, offset);
}

/* Allocations fail alone where no memory is the error: a full disk takes none away. */
static int counts(size_t size) { return armed && number == ENOMEM && (long)size >= least; }
void *malloc(size_t size) {
    static void *(*real)(size_t);
    if (!real) real = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    if (counts(size) && fails("malloc")) return NULL;
    return real(size);
}
void *realloc(void *at, size_t size) {
    static void *(*real)(void *, size_t);
    if (!real) real = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    if (counts(size) && fails("realloc")) return NULL;
    return real(at, size);
}
int posix_memalign(void **to, size_t alignment, size_t size) {
    static int (*real)(void **, size_t, size_t);
    if (!real) real = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
    if (counts(size) && fails("posix_memalign")) return ENOMEM;
    return real(to, alignment, size);
}
