/* SPDX-License-Identifier: MIT
 * Files on their way to their place, which Fortran has no words for: cnn_core_atomic_file has the procedures for users.
 *
 * A part is .NAME.PID.part beside the file that it will replace; of a long name its first bytes and a checksum. It is
 * removed when a signal ends the process, and a lock (flock) on it, HDF5's own or ours, says that its writer lives: the
 * kernel drops it with the process, so the next writer of the same file can tell what a dead one left.
 * bridge/common/atomic_file.py and reference/files/part_file.py do the same; the three agree on name and lock.
 *
 * Source: POSIX.1-2008 sigaction, unlink (both may be called in a signal's handler), realpath, stat; flock(2). */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* As in cnn_core_atomic_file */
enum { LONGEST = 4096, MOST = 32, LONGEST_STEM = 238, LONGEST_NAME = 255 };
enum { PLACE_GOOD, NO_FOLDER, IS_FOLDER, NOT_REGULAR, PROTECTED, NO_PERMISSION };
enum { UNWATCHED = -1, TAKEN = -2 };
enum { COMMITTED, NOT_ON_DISK, NOT_RENAMED };

typedef struct {
    char name[LONGEST];
    int file;
    pid_t owner;
    /* The handler may look at any time; the rest is complete while this is not 0 */
    volatile sig_atomic_t watched;
} part_type;

static part_type parts[MOST];
static int watched;
static atomic_flag busy = ATOMIC_FLAG_INIT;

/* What ends a process that says nothing else, and is no crash */
static const int signals[] = {SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGALRM, SIGXCPU, SIGXFSZ, SIGUSR1, SIGUSR2};
enum { SIGNALS = sizeof signals / sizeof *signals };

static void begin(void) { while (atomic_flag_test_and_set(&busy)) { } }
static void end(void) { atomic_flag_clear(&busy); }

/* Remove the parts of this process, not of the one that it was forked from; then the signal's own action, which
 * SA_RESETHAND has put back, ends the process as if this had not been here */
static void remove_parts(int number)
{
    const pid_t me = getpid();
    for (int i = 0; i < MOST; i++)
        if (parts[i].watched && parts[i].owner == me) unlink(parts[i].name);
    raise(number);
}

/* Only where the action is the default one: who handles or ignores a signal goes on, and so does the part */
static void catch_signals(void)
{
    struct sigaction ours, now;
    memset(&ours, 0, sizeof ours);
    ours.sa_handler = remove_parts;
    ours.sa_flags = (int)SA_RESETHAND;
    sigemptyset(&ours.sa_mask);
    for (int i = 0; i < SIGNALS; i++)
        if (sigaction(signals[i], NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL)
            sigaction(signals[i], &ours, NULL);
}

static void leave_signals(void)
{
    struct sigaction now;
    for (int i = 0; i < SIGNALS; i++)
        if (sigaction(signals[i], NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == remove_parts)
            signal(signals[i], SIG_DFL);
}

static int is_watched(const char *name)
{
    int found = 0;
    for (int i = 0; i < MOST; i++)
        found |= parts[i].watched && parts[i].owner == getpid() && strcmp(parts[i].name, name) == 0;
    return found;
}

/* A write beyond the limit of `ulimit -f` shall fail, as one on a full disk does, and not end the process: the signal waits
 * while this thread writes, and goes when it has */
static _Thread_local int writes;
static _Thread_local sigset_t before;

static void hold_back(void)
{
    sigset_t limit;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    if (writes++ == 0) pthread_sigmask(SIG_BLOCK, &limit, &before);
}

static void let_through(void)
{
    const struct timespec at_once = {0, 0};
    sigset_t limit;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    if (writes == 0 || --writes > 0) return;
    while (!sigismember(&before, SIGXFSZ) && sigtimedwait(&limit, NULL, &at_once) == SIGXFSZ) { }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Name of the part of a file, and of what others have begun of it: `.STEM.`, as long as a name may be with 16 bytes more.
 * CRC-32 of IEEE 802.3, as Python's zlib has it */
static void stem_of(const char *goal, char *stem)
{
    const char *slash = strrchr(goal, '/'), *name = slash == NULL ? goal : slash + 1;
    unsigned long sum = 0xFFFFFFFFUL;
    int kept = LONGEST_STEM - 9;
    /* A name that no file may have is left to the system, which says so */
    if (strlen(name) <= LONGEST_STEM || strlen(name) > LONGEST_NAME) {
        strcpy(stem, name);
        return;
    }
    for (const char *at = name; *at != '\0'; at++) {
        sum ^= (unsigned char)*at;
        for (int bit = 0; bit < 8; bit++) sum = (sum >> 1) ^ (sum & 1 ? 0xEDB88320UL : 0);
    }
    /* No letter of UTF-8 is cut: some file systems refuse that */
    while (kept > 0 && ((unsigned char)name[kept] & 0xC0) == 0x80) kept--;
    snprintf(stem, LONGEST_STEM + 1, "%.*s~%08lx", kept, name, sum ^ 0xFFFFFFFFUL);
}

void cnn_part_name(const char *goal, char *part)
{
    char stem[LONGEST];
    const char *slash = strrchr(goal, '/');
    stem_of(goal, stem);
    const int length = snprintf(part, LONGEST, "%.*s.%s.%ld.part", slash == NULL ? 0 : (int)(slash - goal) + 1, goal,
                                stem, (long)getpid());
    /* Of a name that no file may have there is no part */
    if (length >= LONGEST) part[0] = '\0';
}

/* Why a part that is not there cannot be made, in 256 bytes; empty where it can */
void cnn_part_refusal(const char *name, char *reason)
{
    const int file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    const int found = errno;
    reason[0] = '\0';
    if (file < 0) {
        snprintf(reason, 256, "%s", strerror(found));
    } else {
        close(file);
        unlink(name);
    }
}

/* Watch over a part before it is made; a number for the calls below, UNWATCHED where nobody can, TAKEN where another
 * thread has it */
int cnn_part_watch(const char *name)
{
    int place = UNWATCHED;
    hold_back();
    if (strlen(name) >= LONGEST) return UNWATCHED;
    begin();
    if (is_watched(name)) place = TAKEN;
    for (int i = 0; i < MOST && place == UNWATCHED; i++)
        if (!parts[i].watched) place = i;
    if (place >= 0) {
        strcpy(parts[place].name, name);
        parts[place].file = -1;
        parts[place].owner = getpid();
        if (watched++ == 0) catch_signals();
        parts[place].watched = 1;
    }
    end();
    if (place == TAKEN) let_through();
    return place;
}

/* Lock a part that has been made; not where HDF5 has locked it already, so it is done again when HDF5 has closed it */
void cnn_part_hold(int place)
{
    if (place < 0) return;
    part_type *part = &parts[place];
    if (part->file < 0) part->file = open(part->name, O_RDWR | O_CLOEXEC);
    if (part->file >= 0 && flock(part->file, LOCK_EX | LOCK_NB) != 0) return;
}

/* Forget a part that has been renamed or removed */
void cnn_part_forget(int place)
{
    if (place >= 0) {
        begin();
        parts[place].watched = 0;
        if (parts[place].file >= 0) close(parts[place].file);
        if (--watched == 0) leave_signals();
        end();
    }
    let_through();
}

static int synchronised(int file)
{
    const int done = file >= 0 && fsync(file) == 0;
    if (file >= 0) close(file);
    return done;
}

/* The folder of a file, "." where the name has none */
static void folder_of(const char *path, char *folder)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 0 : (size_t)(slash - path) + 1;
    snprintf(folder, LONGEST, "%.*s", (int)length, path);
    if (length == 0) strcpy(folder, ".");
}

/* Put a part in the place of the file, whose permissions it takes */
int cnn_part_commit(const char *name, const char *goal)
{
    char folder[LONGEST];
    struct stat old;
    if (!synchronised(open(name, O_RDWR | O_CLOEXEC))) return NOT_ON_DISK;
    if (stat(goal, &old) == 0 && chmod(name, old.st_mode & 07777) != 0) return NOT_RENAMED;
    if (rename(name, goal) != 0) return NOT_RENAMED;
    /* The rename itself is safe once its folder is; some file systems cannot do that, and need not */
    folder_of(goal, folder);
    synchronised(open(folder, O_RDONLY | O_CLOEXEC));
    return COMMITTED;
}

/* The process whose part this is, by its name; 0 for other files */
static long writer_of(const char *found, const char *name)
{
    const size_t length = strlen(name);
    if (found[0] != '.' || strncmp(found + 1, name, length) != 0 || found[length + 1] != '.') return 0;
    const char *digits = found + length + 2;
    const size_t count = strspn(digits, "0123456789");
    if (count < 1 || count > 10 || digits[0] == '0' || strcmp(digits + count, ".part") != 0) return 0;
    return strtol(digits, NULL, 10);
}

/* Unless somebody holds its lock, or this file system has none */
static void remove_abandoned(const char *part)
{
    struct stat found;
    const int file = open(part, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return;
    if (fstat(file, &found) == 0 && S_ISREG(found.st_mode) && flock(file, LOCK_EX | LOCK_NB) == 0) unlink(part);
    close(file);
}

/* Remove what dead processes left of a file. Our own number may be that of one before this process began. */
void cnn_part_sweep(const char *goal)
{
    char folder[LONGEST], part[2 * LONGEST], stem[LONGEST];
    const char *slash = strrchr(goal, '/');
    folder_of(goal, folder);
    stem_of(goal, stem);
    DIR *list = opendir(folder);
    if (list == NULL) return;
    for (struct dirent *one = readdir(list); one != NULL; one = readdir(list)) {
        const long writer = writer_of(one->d_name, stem);
        if (writer == 0 || writer > INT_MAX) continue;
        if (writer != getpid() && (kill((pid_t)writer, 0) == 0 || errno != ESRCH)) continue;
        snprintf(part, sizeof part, "%.*s%s", slash == NULL ? 0 : (int)(slash - goal) + 1, goal, one->d_name);
        begin();
        const int ours = is_watched(part);
        end();
        if (!ours) remove_abandoned(part);
    }
    closedir(list);
}

/* The file that a name leads to, which may not be there yet; a symbolic link stays, and what it points to is replaced.
 * 0 where a name leads nowhere */
int cnn_target(const char *path, char *found)
{
    char here[LONGEST], link[LONGEST], folder[LONGEST], next[2 * LONGEST];
    if (strlen(path) >= LONGEST) return 0;
    strcpy(here, path);
    for (int links = 0; links < 40; links++) {
        char *full = realpath(here, NULL);
        const int fits = full != NULL && strlen(full) < LONGEST;
        if (fits) strcpy(found, full);
        free(full);
        if (fits) return 1;
        const ssize_t length = readlink(here, link, LONGEST - 1);
        if (length < 0) {
            strcpy(found, here);
            return 1;
        }
        link[length] = '\0';
        folder_of(here, folder);
        if (link[0] == '/')
            strcpy(next, link);
        else
            snprintf(next, sizeof next, "%s/%s", folder, link);
        if (strlen(next) >= LONGEST) return 0;
        strcpy(here, next);
    }
    return 0;
}

/* Whether a file can be made, or a regular one replaced. Nothing is opened: that may wait for ever */
int cnn_place(const char *goal)
{
    char folder[LONGEST];
    struct stat found;
    folder_of(goal, folder);
    if (stat(folder, &found) != 0 || !S_ISDIR(found.st_mode)) return NO_FOLDER;
    if (stat(goal, &found) == 0) {
        if (S_ISDIR(found.st_mode)) return IS_FOLDER;
        if (!S_ISREG(found.st_mode)) return NOT_REGULAR;
        if (access(goal, W_OK) != 0) return PROTECTED;
    }
    return access(folder, W_OK | X_OK) == 0 ? PLACE_GOOD : NO_PERMISSION;
}

/* Do two names lead to one file, through symbolic or hard links too? A name without a file leads nowhere */
int cnn_same_file(const char *a, const char *b)
{
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

int cnn_may_read(const char *path) { return access(path, R_OK) == 0; }
