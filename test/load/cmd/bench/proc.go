package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpu is the processor time that a process has used; 0 where there is no
// Linux /proc. The scheduler's own count is in nanoseconds, stat's in hundredths of
// a second, too coarse for a short run. Threads that ended are missing from
// it; Go's runtime keeps its threads.
func cpu(pid int) (d time.Duration) {
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/schedstat")
	for _, t := range tasks {
		b, err := os.ReadFile(t)
		if err != nil {
			continue
		}
		first, _, _ := strings.Cut(string(b), " ")
		ns, _ := strconv.ParseInt(first, 10, 64)
		d += time.Duration(ns)
	}
	return d
}

// memory is a field of /proc/PID/status that is in kB (VmRSS, VmHWM), in
// bytes; 0 where there is none.
func memory(pid int, field string) int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			n, _ := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

// machine is the busy and total time of all processors since the start, in
// ticks.
func machine() (busy, total int64) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	for i, f := range strings.Fields(line) {
		if i == 0 || i > 8 { // guest time is part of user time
			continue
		}
		n, _ := strconv.ParseInt(f, 10, 64)
		total += n
		if i != 4 && i != 5 { // idle, iowait
			busy += n
		}
	}
	return busy, total
}
