// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// The image that is made here matches the Containerfile.
func TestContainerfile(t *testing.T) {
	text, err := os.ReadFile("../../docs/guides/service/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	c := config("0.2.0", "")
	port, _, _ := strings.Cut(slices.Collect(maps.Keys(c.ExposedPorts))[0], "/")
	_, last, _ := strings.Cut(string(text), "\nFROM scratch\n")
	if want := "COPY --from=build /out/root/ /\n" +
		"COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/\n" +
		"COPY --from=build /out/tenured /out/tenure /usr/local/bin/\n" +
		fmt.Sprintf("USER %s\nEXPOSE %s\nENTRYPOINT [%q]\n", c.User, port, c.Entrypoint[0]); last != want {
		t.Errorf("the last stage is\n%s\nwant\n%s", last, want)
	}
	script, err := os.ReadFile("../../scripts/release")
	if err != nil {
		t.Fatal(err)
	}
	const user = "echo 'tenure:x:" + "65532:65532:Tenure:/tmp:/sbin/nologin' >"
	for where, in := range map[string]string{"Containerfile": string(text), "script": string(script)} {
		if !strings.Contains(in, user) || !strings.Contains(in, "install -d -m 1777") {
			t.Errorf("in the %s there is another user, or no /tmp", where)
		}
	}
}
