// A web crawler, beside examples/crawler.rs: each page once, eight at a time, at most 500 a second, until all are seen or
// the time is over.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

var link = regexp.MustCompile(`href="(/[^"]*)"`)

type crawler struct {
	site   string
	ctx    context.Context
	cancel context.CancelCauseFunc
	places chan struct{}
	tokens chan struct{}
	group  sync.WaitGroup

	mu    sync.Mutex
	seen  map[string]bool
	pages int
	bytes int
}

// visit crawls a page and all that it leads to, in a goroutine each.
func (c *crawler) visit(path string) {
	c.mu.Lock()
	known := c.seen[path]
	c.seen[path] = true
	c.mu.Unlock()
	if known {
		return
	}
	c.group.Go(func() {
		page, err := c.fetch(path)
		if err != nil {
			c.cancel(err) // the first error ends all
			return
		}
		for _, found := range link.FindAllStringSubmatch(page, -1) {
			c.visit(found[1])
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pages++
		c.bytes += len(page)
	})
}

func (c *crawler) fetch(path string) (string, error) {
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	case <-c.ctx.Done():
		return "", context.Cause(c.ctx)
	}
	select {
	case <-c.tokens:
	case <-c.ctx.Done():
		return "", context.Cause(c.ctx)
	}
	request, err := http.NewRequestWithContext(c.ctx, http.MethodGet, c.site+path, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	page, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, 1<<20))
	return string(page), err
}

// limit fills the bucket: 50 tokens at once, then 500 a second.
func (c *crawler) limit() {
	for range cap(c.tokens) {
		c.tokens <- struct{}{}
	}
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			select {
			case c.tokens <- struct{}{}:
			default:
			}
		case <-c.ctx.Done():
			return
		}
	}
}

// page is of a site of 200: each leads to two further on, and back to the first.
func page(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.URL.Path[1:])
	for _, to := range []int{2*n + 1, 2*n + 2, 0} {
		if to >= 200 {
			to = 0
		}
		fmt.Fprintf(w, `<a href="/%d">next</a>`, to)
	}
}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var site string
	if len(os.Args) > 1 {
		site = strings.TrimRight(os.Args[1], "/")
	} else {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			log.Fatal(err)
		}
		go http.Serve(listener, http.HandlerFunc(page))
		site = "http://" + listener.Addr().String()
	}
	c := &crawler{
		site:   site,
		ctx:    ctx,
		cancel: cancel,
		places: make(chan struct{}, 8),
		tokens: make(chan struct{}, 50),
		seen:   map[string]bool{},
	}
	go c.limit()
	c.visit("/0")
	c.group.Wait()
	if err := context.Cause(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d pages, %d bytes\n", c.pages, c.bytes)
}
