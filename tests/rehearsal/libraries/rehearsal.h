/* Shared by the stub libraries: a trace of their calls, and a clock that only work advances.
 *
 * An entry of the trace is a line of words, "product by=cublasSgemm_v2 type=0", and is counted per
 * interval: interval 0 ends at the first call of rehearsal_next_interval. */
#pragma once

void rehearsal_record(const char *format, ...) __attribute__((format(printf, 1, 2)));
int rehearsal_next_interval(void);
int rehearsal_write(const char *path);

/* a call of a function without a stub: traced, printed on stderr, and answered by an error */
void rehearsal_refuse(const char *name);

/* advance the device clock by these nanoseconds; one clock for all streams of a process */
void rehearsal_work(long nanoseconds);
long rehearsal_now(void);

int rehearsal_device(void);
