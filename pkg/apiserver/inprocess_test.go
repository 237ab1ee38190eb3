package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var errConnection = errors.New("over the connection")

func ask(ctx context.Context, t *testing.T, url string, handler http.Handler) (*http.Response, error) {
	t.Helper()
	p := &inProcess{
		handler:    func() http.Handler { return handler },
		connection: roundTripper(func(*http.Request) (*http.Response, error) { return nil, errConnection }),
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader("question"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer token")
	return p.RoundTrip(request)
}

const requested = "https://127.0.0.1:8443/apis/x?dryRun=All"

// Req
func TestARequestOfTheServerToItselfIsOneLikeAnyOther(t *testing.T) {
	response, err := ask(t.Context(), t, requested, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Warning", "none")
		w.WriteHeader(http.StatusConflict)
		w.WriteHeader(http.StatusOK)
		w.Header().Set("Late", "too late")
		w.(http.Flusher).Flush()
		_, _ = fmt.Fprintf(w, "%s %s %s %s %s %s", r.Method, r.RequestURI, r.Host, r.Header.Get("Authorization"), body, r.RemoteAddr)
	}))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	if want := "PUT /apis/x?dryRun=All 127.0.0.1:8443 Bearer token question 127.0.0.1:0"; string(body) != want || response.ContentLength != int64(len(want)) {
		t.Errorf("the body has %d bytes: %s", response.ContentLength, body)
	}
	if response.StatusCode != http.StatusConflict || response.Header.Get("Warning") != "none" || response.Header.Get("Late") != "" {
		t.Errorf("answer %d with %v", response.StatusCode, response.Header)
	}
}

func TestAnAnswerWithoutAWordIsOne(t *testing.T) {
	response, err := ask(t.Context(), t, requested, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if err != nil || response.StatusCode != http.StatusOK || response.ContentLength != 0 {
		t.Errorf("answer %+v, %v", response, err)
	}
}

func TestWhatHasNoEndAndWhatComesBeforeTheServerTakeTheConnection(t *testing.T) {
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler is asked") })
	if _, err := ask(t.Context(), t, requested+"&watch=true", handler); !errors.Is(err, errConnection) {
		t.Errorf("a watch: %v", err)
	}
	if _, err := ask(t.Context(), t, requested, nil); !errors.Is(err, errConnection) {
		t.Errorf("without a server: %v", err)
	}
}

func TestAHandlerThatPanicsTakesNobodyAlong(t *testing.T) {
	for _, cause := range []any{http.ErrAbortHandler, "surprise"} {
		_, err := ask(t.Context(), t, requested, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half an ans")
			panic(cause)
		}))
		if !errors.Is(err, errAborted) {
			t.Errorf("panic of %v: %v", cause, err)
		}
	}
}

func TestWhoseContextEndsHearsThatAndNothingElse(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	response, err := ask(ctx, t, requested, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		w.WriteHeader(http.StatusGatewayTimeout)
	}))
	if response != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("answer %v, %v", response, err)
	}
	if _, err := ask(ctx, t, requested, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler is asked") })); !errors.Is(err, context.Canceled) {
		t.Errorf("afterwards: %v", err)
	}
}
