// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"net"
	"net/url"
	"os"
	"strings"
)

// Host returns the host on which the store is, the first one of several, without a port:
// for whoever wants to know by which of its addresses this machine reaches it. It is the
// loopback for a store of this machine, and empty if nobody can tell. Once a store on
// DynamoDB was opened its region is known, too.
func (l Location) Host() string {
	const here = "127.0.0.1"
	if l.file != "" || l.private {
		return here
	}
	scheme, rest, _ := strings.Cut(l.URL(), "://")
	rest, query, _ := strings.Cut(rest, "?")
	switch scheme {
	case "dynamodb", "s3":
		values, err := url.ParseQuery(query)
		if err != nil {
			return ""
		}
		if u, err := url.Parse(values.Get("endpoint")); err == nil && u.Hostname() != "" {
			return u.Hostname()
		}
		if region := values.Get("region"); region != "" {
			return scheme + "." + region + ".amazonaws.com"
		}
		return ""
	case "kubernetes":
		return os.Getenv("KUBERNETES_SERVICE_HOST") // in a pod
	}
	host, _, _ := strings.Cut(rest, "/")
	host = host[strings.LastIndex(host, "@")+1:]
	host, _, _ = strings.Cut(host, ",")
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host = strings.Trim(host, "[]"); host == "" {
		return here // a socket of this machine
	}
	return withZone(host)
}
