// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	const in = `{"ImportPath":"p","Action":"build-output","Output":"# p\nx.go:1: no\n"}
{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"TestOne"}
{"Action":"output","Package":"a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"output","Package":"a","Test":"TestOne","Output":"    one_test.go:3: said\n"}
{"Action":"output","Package":"a","Test":"TestOne","Output":"    one_test.go:7: no engine: get it\n"}
{"Action":"output","Package":"a","Test":"TestOne","Output":"--- SKIP: TestOne (0.00s)\n"}
{"Action":"skip","Package":"a","Test":"TestOne"}
{"Action":"output","Package":"a","Test":"TestTwo/sub","Output":"    one_test.go:9: no engine: get it\n"}
{"Action":"skip","Package":"a","Test":"TestTwo/sub"}
{"Action":"output","Package":"a","Test":"TestTwo","Output":"    one_test.go:5: nobody wants to know\n"}
{"Action":"pass","Package":"a","Test":"TestTwo"}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t1s\n"}
{"Action":"pass","Package":"a"}
{"Action":"output","Package":"b","Test":"TestThree","Output":"=== RUN   TestThree\n"}
{"Action":"output","Package":"b","Test":"TestThree","Output":"    b_test.go:1: wrong\n"}
{"Action":"output","Package":"b","Test":"TestThree","Output":"--- FAIL: TestThree (0.00s)\n"}
{"Action":"fail","Package":"b","Test":"TestThree"}
{"Action":"output","Package":"b","Test":"TestFour","Output":"panic: oh\n"}
{"Action":"output","Package":"b","Output":"FAIL\tb\t1s\n"}
{"Action":"fail","Package":"b"}
{"Action":"output","Package":"c","Output":"?   \tc\t[no test files]\n"}
{"Action":"skip","Package":"c"}
go: a line of its own
`
	const want = `# p
x.go:1: no
ok  	a	1s
    b_test.go:1: wrong
--- FAIL: TestThree (0.00s)
panic: oh
FAIL	b	1s
go: a line of its own
skipped 2: no engine: get it
`
	var out strings.Builder
	if err := run(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
