// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/memstore"
)

// A leader checks its lease, is paused, and writes when its successor has
// begun. The gate refuses that write.
func ExampleGate() {
	ctx := context.Background()
	gate := fence.NewGate(nil)
	write := func(who string, token uint64) {
		err := gate.Do(ctx, "ledger", token, func(context.Context) error {
			fmt.Println(who, "writes under token", token)
			return nil
		})
		if err != nil {
			fmt.Println(who+":", err)
		}
	}

	write("web-7", 1)
	write("web-8", 2) // web-7 is paused meanwhile
	write("web-7", 1)
	fmt.Println("refused:", gate.Refusals())
	// Output:
	// web-7 writes under token 1
	// web-8 writes under token 2
	// web-7: fence "ledger": token 1 is stale, token 2 has passed: another holder has begun, stop
	// refused: 1
}

// A new holder that reads before it writes has its token admitted first. Then
// the data that it reads do not change.
func ExampleGate_Admit() {
	ctx := context.Background()
	gate := fence.NewGate(nil)
	balance := 100

	if err := gate.Admit(ctx, "ledger", 2); err != nil {
		log.Fatal(err)
	}
	read := balance
	late := gate.Do(ctx, "ledger", 1, func(context.Context) error { balance = 0; return nil })
	fmt.Println(errors.Is(late, fence.ErrStale))
	_ = gate.Do(ctx, "ledger", 2, func(context.Context) error { balance = read + 10; return nil })
	fmt.Println(balance)
	// Output:
	// true
	// 110
}

// The server has the gate, and the holder's transport sends the token.
func ExampleHandler() {
	gate := fence.NewGate(nil)
	ledger := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line, _ := io.ReadAll(r.Body)
		fmt.Printf("written: %s\n", line)
	})
	server := httptest.NewServer(fence.Handler(gate, ledger, &fence.HandlerOptions{
		Lock: func(*http.Request) string { return "ledger" },
	}))
	defer server.Close()

	ctx := context.Background()
	locks, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	client := &http.Client{Transport: fence.NewTransport(nil, nil)}
	post := func(ctx context.Context, client *http.Client, line string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(line))
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		return fence.Refusal(answer)
	}

	var former fence.Grant
	for _, line := range []string{"first", "second"} {
		err := locks.Run(ctx, "ledger", nil, func(ctx context.Context, lease *tenure.Lease) error {
			if former == nil {
				former = fence.Fixed(lease.Name(), lease.Token())
			}
			return post(ctx, client, line)
		})
		if err != nil {
			log.Fatal(err)
		}
	}

	// A request of the first holder that was long under way.
	late := &http.Client{Transport: fence.NewTransport(nil, &fence.TransportOptions{Grant: former})}
	fmt.Println(post(ctx, late, "late"))
	// Output:
	// written: first
	// written: second
	// fence "ledger": token 1 is stale, token 2 has passed: another holder has begun, stop
}

// The guard is part of the transaction that writes. It needs a table: see
// [fence.SQL.CreateTable].
func ExampleSQL_Guard() {
	pay := func(ctx context.Context, db *sql.DB, lease *tenure.Lease) error {
		guard, err := fence.NewSQL(&fence.SQLOptions{Placeholder: fence.Dollar})
		if err != nil {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := guard.Guard(ctx, tx, "ledger", lease.Token()); err != nil {
			return err // a *StaleError if another holder has begun
		}
		if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - 10 WHERE id = $1", 7); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = pay
}
