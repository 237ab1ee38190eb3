package localcluster

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// testPod is the program that the tests' pods run: this test binary, started
// under the name "testpod". It serves its file, arguments and environment, and
// its health can be switched.
func testPod(args []string) int {
	flags := flag.NewFlagSet("testpod", flag.ExitOnError)
	listen := flags.String("listen", "", "address to serve on; none: wait for the end")
	file := flags.String("file", "", "file served at /file")
	ignoreTerm := flags.Bool("ignore-term", false, "do not end on SIGTERM")
	exit := flags.Int("exit", -1, "end at once with this code")
	_ = flags.Parse(args)
	if *exit >= 0 {
		return *exit
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if *ignoreTerm {
		ctx = context.Background()
	}
	fmt.Println("testpod started")
	if *listen != "" {
		var unready, dead atomic.Bool
		health := func(bad *atomic.Bool) http.HandlerFunc {
			return func(w http.ResponseWriter, request *http.Request) {
				if request.Method == http.MethodPost {
					bad.Store(true)
				} else if bad.Load() {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}
		}
		mux := http.NewServeMux()
		mux.HandleFunc("/readyz", health(&unready))
		mux.HandleFunc("/livez", health(&dead))
		mux.HandleFunc("/file", func(w http.ResponseWriter, _ *http.Request) {
			content, err := os.ReadFile(*file)
			if err != nil {
				http.Error(w, err.Error(), http.StatusNotFound)
				return
			}
			_, _ = w.Write(content)
		})
		mux.HandleFunc("/env/{name}", func(w http.ResponseWriter, request *http.Request) {
			fmt.Fprint(w, os.Getenv(request.PathValue("name")))
		})
		mux.HandleFunc("/args", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Join(args, " ")) })
		mux.HandleFunc("/pid", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, os.Getpid()) })
		server := &http.Server{Addr: *listen, Handler: mux, ReadHeaderTimeout: time.Second}
		go func() {
			fmt.Fprintln(os.Stderr, server.ListenAndServe())
			os.Exit(1)
		}()
	}
	<-ctx.Done()
	fmt.Println("testpod ended")
	return 0
}
