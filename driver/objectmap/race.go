// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package objectmap

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/tenurelock/tenure/driver"
)

// Race has writers write one object at the same time, for the given number of rounds:
// first all of them create it, then all of them replace it. The writers use the given
// ways, which lead to the same engine, in turn. It takes about 2 requests for each writer
// and round, below prefix + "probe/".
//
// An error that matches driver.ErrPermanent says that more than one write won: two processes
// would hold one lock there. Any other error says that the engine could not be tried; a
// throttled writer is no error as long as another writer wins. A nil error proves nothing: a
// race need not show.
func Race(ctx context.Context, ways []Objects, prefix string, writers, rounds int) error {
	for round := range rounds {
		name := prefix + probes + rand.Text()
		tag, err := race(ctx, ways, name, "", writers)
		if err == nil && tag != "" {
			_, err = race(ctx, ways, name, tag, writers)
		}
		if left := ways[0].Delete(ctx, name, ""); err == nil {
			err = left
		}
		if err != nil {
			return fmt.Errorf("round %d of %d: %w", round+1, rounds, err)
		}
	}
	return nil
}

// race makes one round of writes from a tag, and returns the tag of the winner, if there is
// one.
func race(ctx context.Context, ways []Objects, name, from string, writers int) (tag string, err error) {
	tags, errs := make([]string, writers), make([]error, writers)
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			<-begin
			body := fmt.Sprintf("tenure race %d after %s", i, from)
			tags[i], errs[i] = ways[i%len(ways)].Put(ctx, name, []byte(body), from)
		})
	}
	close(begin)
	wg.Wait()
	won := 0
	var slow error
	for i, e := range errs {
		switch {
		case e == nil:
			won++
			tag = tags[i]
		case errors.Is(e, driver.ErrThrottled):
			slow = e
		case !errors.Is(e, ErrMismatch) && !errors.Is(e, ErrBusy):
			err = e // the outcome is unknown
		}
	}
	switch {
	case won > 1 && from == "":
		return "", unsound(fmt.Sprintf("the server let %d of %d writers create one object", won, writers))
	case won > 1:
		return "", unsound(fmt.Sprintf("the server let %d of %d writers replace one object under one tag", won, writers))
	}
	if err == nil && won == 0 {
		err = slow
	}
	return tag, err
}
