/*
 * The wall clock of a server, set from outside: preloaded into it, this answers instead of libc. Monotonic clocks are those
 * of the machine, and who waits until a time of the wall clock waits as long as it is until then. The file named by
 * CLOCK_SHIM holds two numbers of 64 bits, in microseconds: how far the clock is ahead, and, unless it is 0, the time at
 * which it stands still.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MICROSECONDS 1000000LL
#define SECOND_NS 1000000000LL
#define FARTHEST_UPTIME 1000000000LL

static const volatile long long fair[2];
static const volatile long long *set;

static const volatile long long *setting(void) {
  if (set) return set;
  const char *path = getenv("CLOCK_SHIM");
  int file = path ? open(path, O_RDONLY) : -1;
  void *mapped = file < 0 ? MAP_FAILED : mmap(0, sizeof fair, PROT_READ, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  return set = mapped == MAP_FAILED ? fair : mapped;
}

static long long microseconds(const struct timespec *real) {
  long long stands_at = setting()[1];
  if (stands_at) return stands_at;
  return real->tv_sec * MICROSECONDS + real->tv_nsec / 1000 + setting()[0];
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  if (syscall(SYS_clock_gettime, clock, time)) return -1;
  if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) return 0;
  long long us = microseconds(time);
  time->tv_sec = us / MICROSECONDS;
  time->tv_nsec = us % MICROSECONDS * 1000 + time->tv_nsec % 1000;
  return 0;
}

int gettimeofday(struct timeval *time, void *zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (time) *time = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t *seconds) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds) *seconds = now.tv_sec;
  return now.tv_sec;
}

static long long nanoseconds(const struct timespec *time) {
  return time->tv_sec * SECOND_NS + time->tv_nsec;
}

/*
 * The kernel would compare with its own clock: MariaDB's waits of a second ended at once when the clock was set back, and
 * InnoDB, which counts them, aborted after 600 of them ("Long wait for double-write buffer flush").
 */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
  struct timespec now, end = *until;
  /* The clock is an attribute of the condition that cannot be read: no machine has been up for so long. */
  if (until->tv_sec > FARTHEST_UPTIME) {
    clock_gettime(CLOCK_REALTIME, &now);
    long long left = nanoseconds(until) - nanoseconds(&now);
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long at = nanoseconds(&now) + (left > 0 ? left : 0);
    end = (struct timespec){at / SECOND_NS, at % SECOND_NS};
  }
  return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &end);
}
