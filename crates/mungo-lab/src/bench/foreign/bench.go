// The micro-benchmarks in Go: bench CASE prints one number, or "n/a: why".
package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func nsPer(start time.Time, n int) float64 {
	return float64(time.Since(start).Nanoseconds()) / float64(n)
}

// The same pseudo-random stream as everybody's.
func mix(i uint64) uint64 {
	z := (i + 1) * 0x9E3779B97F4A7C15
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB
	return z ^ (z >> 31)
}

func rss() float64 {
	text, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "VmRSS:") {
			kib, _ := strconv.ParseFloat(strings.Fields(line)[1], 64)
			return kib * 1024
		}
	}
	return 0
}

func each(tasks int, f func()) {
	var all sync.WaitGroup
	all.Add(tasks)
	for i := 0; i < tasks; i++ {
		go func() { f(); all.Done() }()
	}
	all.Wait()
}

func spawn(n int) float64 {
	start := time.Now()
	for i := 0; i < n/1000; i++ {
		each(1000, func() {})
	}
	return nsPer(start, n)
}

func yields(tasks, n int) float64 {
	start := time.Now()
	each(tasks, func() {
		for i := 0; i < n/tasks; i++ {
			runtime.Gosched()
		}
	})
	return nsPer(start, n)
}

func pingpong(n int) float64 {
	to, back := make(chan uint64), make(chan uint64)
	start := time.Now()
	go func() {
		for ball := range to {
			back <- ball
		}
	}()
	for i := 0; i < n; i++ {
		to <- uint64(i)
		<-back
	}
	close(to)
	return nsPer(start, n)
}

func channel(n int) float64 {
	c := make(chan uint64, 128)
	start := time.Now()
	go func() {
		for i := 0; i < n; i++ {
			c <- uint64(i)
		}
		close(c)
	}()
	for range c {
	}
	return nsPer(start, n)
}

func choose(n int) float64 {
	var cs [4]chan uint64
	start := time.Now()
	for i := range cs {
		c := make(chan uint64)
		cs[i] = c
		go func() {
			for j := 0; j < n/4; j++ {
				c <- uint64(j)
			}
		}()
	}
	sum := uint64(0)
	for i := 0; i < n; i++ {
		select {
		case v := <-cs[0]:
			sum += v
		case v := <-cs[1]:
			sum += v
		case v := <-cs[2]:
			sum += v
		case v := <-cs[3]:
			sum += v
		}
	}
	return nsPer(start, n)
}

func mutex(tasks, times int) float64 {
	var lock sync.Mutex
	count := 0
	start := time.Now()
	each(tasks, func() {
		for i := 0; i < times; i++ {
			lock.Lock()
			count++
			lock.Unlock()
		}
	})
	if count != tasks*times {
		panic("lost an update")
	}
	return nsPer(start, count)
}

func timers(n int, longest time.Duration) float64 {
	var all sync.WaitGroup
	all.Add(n)
	start := time.Now()
	for i := 0; i < n; i++ {
		nap := time.Duration(mix(uint64(i))%uint64(longest.Microseconds())) * time.Microsecond
		go func() { time.Sleep(nap); all.Done() }()
	}
	all.Wait()
	return float64((time.Since(start) - longest).Nanoseconds()) / 1e6
}

func parked(n int) float64 {
	var all sync.WaitGroup
	c := make(chan int)
	before := rss()
	all.Add(n)
	for i := 0; i < n; i++ {
		go func() { <-c; all.Done() }()
	}
	time.Sleep(200 * time.Millisecond)
	used := rss() - before
	for i := 0; i < n; i++ {
		c <- 1
	}
	all.Wait()
	return used / float64(n)
}

// A sleeper among goroutines that compute: the 99th percentile of its lateness, in us.
func wakeup(hogs int, run, nap time.Duration) float64 {
	var stop atomic.Bool
	var all sync.WaitGroup
	all.Add(hogs)
	for i := 0; i < hogs; i++ {
		go func() {
			for !stop.Load() {
			}
			all.Done()
		}()
	}
	var late []float64
	for end := time.Now().Add(run); time.Now().Before(end); {
		due := time.Now().Add(nap)
		time.Sleep(time.Until(due))
		late = append(late, float64(time.Since(due).Nanoseconds())/1e3)
	}
	stop.Store(true)
	all.Wait()
	sort.Float64s(late)
	return late[len(late)*99/100]
}

func main() {
	sleeper := func() float64 { return wakeup(8, 700*time.Millisecond, 1*time.Millisecond) }
	cases := map[string]func() float64{
		"spawn":    func() float64 { return spawn(200000) },
		"yield":    func() float64 { return yields(8, 1000000) },
		"pingpong": func() float64 { return pingpong(100000) },
		"channel":  func() float64 { return channel(1000000) },
		"select":   func() float64 { return choose(200000) },
		"mutex":    func() float64 { return mutex(8, 50000) },
		"timers":   func() float64 { return timers(100000, 200*time.Millisecond) },
		"memory":   func() float64 { return parked(100000) },

		"wakeup":          sleeper,
		"wakeup-priority": sleeper,
		"wakeup-deadline": sleeper,
	}
	fmt.Println(cases[os.Args[1]]())
}
