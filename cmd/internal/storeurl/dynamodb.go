// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure/dynamostore"
)

// DynamoDB is what the URL of a store on DynamoDB says:
//
//	dynamodb://TABLE?region=REGION&endpoint=URL
type DynamoDB struct {
	Table string
	Account
	Options dynamostore.Options

	found *found
}

// parameters are those of a URL, in the order in which they are written.
var parameters = []string{
	"region", "endpoint", "profile", "dialect", "shared", "partition-key", "sort-key", "sort-value", "eventual-replicas", "ttl", "unshare",
}

// What the parts of a URL may be made of. Those of a table are DynamoDB's own
// rule; those of a region would make a host of it. Regular expressions that count far
// take time at every start of the command.
var (
	tableName     = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
	parameterName = regexp.MustCompile(`^[A-Za-z][A-Za-z_-]*$`)
	regionName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)
	tableARN      = regexp.MustCompile(`^arn:aws[a-z-]*:dynamodb:([a-z]+(?:-[a-z]+)+-[0-9]):[0-9]{12}:table/([A-Za-z0-9_.-]+)$`)
)

func parseDynamoDB(rest string) (Location, error) {
	d, err := readDynamoDB(rest)
	if err != nil {
		return Location{}, err
	}
	d.found = new(found)
	return Location{engine: d, current: func() string { return d.found.or(d.URL()) }, open: d.open}, nil
}

// readDynamoDB reads what follows the colon. It does not leave that to net/url,
// which takes what is wrong here for a port, or for a fragment.
func readDynamoDB(rest string) (DynamoDB, error) {
	const write = "write dynamodb://TABLE?region=REGION"
	rest, slashes := strings.CutPrefix(rest, "//")
	table, query, _ := strings.Cut(rest, "?")
	d := DynamoDB{Table: table}
	arn := tableARN.FindStringSubmatch(table)
	switch {
	case !slashes || table == "":
		return d, errors.New("the table is missing: " + write)
	case arn != nil:
		return d, fmt.Errorf("an ARN stands where the table's name belongs: write dynamodb://%s?region=%s", arn[2], arn[1])
	case strings.Contains(table, "@"):
		return d, errors.New("a user or a password stands in it: credentials come from AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the machine's role; " + write)
	case strings.HasPrefix(table, "localhost"), strings.Contains(table, ":"):
		return d, errors.New("a host or a port stands where the table's name belongs: write dynamodb://TABLE?region=REGION&endpoint=http://HOST:PORT")
	case strings.Contains(table, "/"):
		return d, errors.New("a path follows the table's name: leave it out, and " + write)
	case strings.Contains(rest, "#"):
		return d, errors.New(`it has a "#": write %23 in its place`)
	case len(table) < 3 || len(table) > 255 || !tableName.MatchString(table):
		return d, fmt.Errorf("table name %.40q: it must have 3 to 255 letters, digits, and signs of _ . -", table)
	}
	values, err := readParameters(query, parameters)
	if err != nil {
		return d, err
	}
	return d, d.set(values)
}

// set takes the parameters, each of which is there once at the most.
func (d *DynamoDB) set(values url.Values) (err error) {
	if err = d.read(values); err != nil {
		return err
	}
	o := dynamostore.Options{
		PartitionKey: values.Get("partition-key"), SortKey: values.Get("sort-key"), SortValue: values.Get("sort-value"),
	}
	if (o.SortKey == "") != (o.SortValue == "") {
		return errors.New("sort-key= and sort-value= go together: the name of the table's sort key, and the value that the locks of this store have there")
	}
	if name := values.Get("dialect"); name != "" {
		if o.Dialect, err = dynamostore.ParseDialect(name); err != nil {
			return errors.New("dialect= is neither java nor dynamolock: leave it out, or write that of the other lock client of this table")
		}
	}
	if err = readSwitches(values, false, map[string]*bool{
		"shared": &o.SharedTable, "eventual-replicas": &o.EventualReplicas, "ttl": &o.TimeToLive, "unshare": &o.Unshare,
	}); err != nil {
		return err
	}
	if o.PartitionKey == dynamostore.DefaultPartitionKey {
		o.PartitionKey = ""
	}
	d.Options = o
	// It sends nothing: it says which options there cannot be.
	if _, err := dynamostore.New(dynamodb.New(dynamodb.Options{}), d.Table, &o); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "dynamostore: "))
	}
	return nil
}

// endpoint returns a base URL as all write it.
func endpoint(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	const write = "write endpoint=http://HOST:PORT or endpoint=https://HOST"
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return "", errors.New("endpoint= is no address of a server: " + write)
	case u.User != nil:
		return "", errors.New("endpoint= has a user or a password: leave it out, " + write)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", errors.New(`endpoint= ends with a "?" or "#" of its own: ` + write)
	}
	u.Host = strings.ToLower(u.Host)
	return strings.TrimRight(u.String(), "/"), nil
}

// URL returns the URL that says the same: what is a default is left out, and
// the rest stands in one order.
func (d DynamoDB) URL() string {
	values := d.values()
	values["partition-key"], values["sort-key"], values["sort-value"] = d.Options.PartitionKey, d.Options.SortKey, d.Options.SortValue
	if d.Options.Dialect != dynamostore.Java {
		values["dialect"] = d.Options.Dialect.String()
	}
	for name, is := range map[string]bool{
		"shared": d.Options.SharedTable, "eventual-replicas": d.Options.EventualReplicas, "ttl": d.Options.TimeToLive, "unshare": d.Options.Unshare,
	} {
		if is {
			values[name] = "true"
		}
	}
	return withParameters("dynamodb://"+d.Table, parameters, values)
}

// withParameters returns a URL with the parameters that have a value, in the order of names.
func withParameters(text string, names []string, values map[string]string) string {
	separator := "?"
	for _, name := range names {
		if value := values[name]; value != "" {
			text += separator + name + "=" + escape(value)
			separator = "&"
		}
	}
	return text
}

// readSwitches reads parameters that are true or false, or, with digits, 1 or 0 as well.
func readSwitches(values url.Values, digits bool, switches map[string]*bool) error {
	for name, to := range switches {
		switch value := values.Get(name); {
		case value == "true" || digits && value == "1":
			*to = true
		case value == "" || value == "false" || digits && value == "0":
		case digits:
			return fmt.Errorf("%s= is neither 1 nor 0", name)
		default:
			return fmt.Errorf("%s= is neither true nor false", name)
		}
	}
	return nil
}

// escape is url.QueryEscape, and leaves an endpoint legible.
func escape(value string) string {
	return strings.NewReplacer("%3A", ":", "%2F", "/").Replace(url.QueryEscape(value))
}
