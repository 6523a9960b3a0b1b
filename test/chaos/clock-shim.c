/*
 * The wall clock of a server, set from outside: preloaded into it, this answers instead of libc. Monotonic clocks are those
 * of the machine. The file named by CLOCK_SHIM holds two numbers of 64 bits, in microseconds: how far the clock is ahead,
 * and, unless it is 0, the time at which it stands still.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MICROSECONDS 1000000LL

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
