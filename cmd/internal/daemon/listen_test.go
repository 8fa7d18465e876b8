// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A request that is not read to its end has an answer to its end: net/http ends the writing
// of such a connection before it closes it, so that what was read too little resets nothing.
func TestAnswerToARequestThatIsTooLong(t *testing.T) {
	for _, a := range []address{{network: "tcp", where: "127.0.0.1:0"}, {network: "unix", where: filepath.Join(t.TempDir(), "s")}} {
		l, err := listen(a, nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{MaxHeaderBytes: 16 << 10, ReadHeaderTimeout: time.Minute}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(l) }()
		for range 2 { // the second one when the first has ended
			c, err := new(net.Dialer).DialContext(t.Context(), a.network, l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("x", 64<<10)); err != nil {
				t.Fatal(err)
			}
			if answer, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 431 ") {
				t.Errorf("%s: %q, %v", a.network, answer, err)
			}
			_ = c.Close()
		}
		if err := server.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}
}
