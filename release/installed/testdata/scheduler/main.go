// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Command scheduler is what the recipes run: it says when it begins and when it stops.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	fmt.Println("active", os.Getenv("TENURE_TOKEN"))
	<-stop
	fmt.Println("stopped", os.Getenv("TENURE_TOKEN"))
}
