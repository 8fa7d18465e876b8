// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"
)

// scrape reads the metrics of an exporter until each pattern is found, and those that begin
// with "!" are not. It prints the metrics.
//
//	scrape LOG PATTERN...
func scrape() error {
	args := os.Args[1:]
	deadline := time.Now().Add(2 * time.Minute)
	shown, err := "", errors.New("no log yet")
	for time.Now().Before(deadline) {
		var log []byte
		if log, err = os.ReadFile(args[0]); err == nil {
			shown, err = metricsOf(string(log))
		}
		if err == nil {
			if err = missing(shown, args[1:]); err == nil {
				fmt.Fprint(os.Stdout, shown)
				return nil
			}
		}
		<-time.After(50 * time.Millisecond)
	}
	return fmt.Errorf("%w; the last metrics:\n%s", err, shown)
}

func metricsOf(log string) (string, error) {
	_, url, found := strings.Cut(log, "serving ")
	url, _, whole := strings.Cut(url, "\n")
	if !found || !whole {
		return "", errors.New("the log names no address")
	}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return string(text), err
}

func missing(text string, patterns []string) error {
	for _, p := range patterns {
		pattern, not := strings.CutPrefix(p, "!")
		if regexp.MustCompile("(?m)"+pattern).MatchString(text) == not {
			return fmt.Errorf("not so: %s", p)
		}
	}
	return nil
}
