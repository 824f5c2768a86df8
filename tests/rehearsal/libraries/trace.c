/* The trace of a process, and the clock of its devices; a part of libcudart's stub. */
#include "rehearsal.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1 << 16, LONGEST = 4096 };

struct entry {
  int interval;
  long count;
  char *text;
  struct entry *next;
};

static struct entry *entries[BUCKETS];
static int interval;
static long now;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned hash(const char *text) {
  unsigned sum = 5381 + interval;
  while (*text) sum = sum * 33 + (unsigned char)*text++;
  return sum % BUCKETS;
}

void rehearsal_record(const char *format, ...) {
  char text[LONGEST];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  pthread_mutex_lock(&lock);
  struct entry **place = &entries[hash(text)];
  while (*place && ((*place)->interval != interval || strcmp((*place)->text, text)))
    place = &(*place)->next;
  if (!*place) {
    *place = calloc(1, sizeof **place);
    (*place)->interval = interval;
    (*place)->text = strdup(text);
  }
  (*place)->count++;
  pthread_mutex_unlock(&lock);
}

int rehearsal_next_interval(void) {
  pthread_mutex_lock(&lock);
  int begun = ++interval;
  pthread_mutex_unlock(&lock);
  return begun;
}

int rehearsal_write(const char *path) {
  FILE *file = fopen(path, "w");
  if (!file) return -1;
  pthread_mutex_lock(&lock);
  for (int bucket = 0; bucket < BUCKETS; bucket++)
    for (struct entry *one = entries[bucket]; one; one = one->next)
      fprintf(file, "%d\t%ld\t%s\n", one->interval, one->count, one->text);
  pthread_mutex_unlock(&lock);
  return fclose(file);
}

void rehearsal_refuse(const char *name) {
  rehearsal_record("unknown name=%s", name);
  fprintf(stderr, "rehearsal: no stand-in for %s\n", name);
}

void rehearsal_work(long nanoseconds) { __atomic_add_fetch(&now, nanoseconds, __ATOMIC_SEQ_CST); }

long rehearsal_now(void) { return __atomic_load_n(&now, __ATOMIC_SEQ_CST); }
