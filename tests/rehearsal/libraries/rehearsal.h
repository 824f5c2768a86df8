/* What the stand-ins share: a trace of what they were asked for, and a clock that only work moves.
 *
 * An entry of the trace is a line of words, "product by=cublasSgemm_v2 type=0", and is counted within
 * the interval in which it came: 0 is what comes before the first call of rehearsal_next_interval. */
#pragma once

void rehearsal_record(const char *format, ...) __attribute__((format(printf, 1, 2)));
int rehearsal_next_interval(void);
int rehearsal_write(const char *path);

/* a function that no stand-in knows: written down, told on stderr, and answered by an error */
void rehearsal_refuse(const char *name);

/* nanoseconds of device time that this work takes; one clock for all streams of a process */
void rehearsal_work(long nanoseconds);
long rehearsal_now(void);

int rehearsal_device(void);
