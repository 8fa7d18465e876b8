// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"path"
)

//go:embed pages/*.html
var pageFiles embed.FS

//go:embed static
var staticFiles embed.FS

// staticTypes are the types of what is in the folder static.
var staticTypes = map[string]string{
	"style.css": "text/css; charset=utf-8",
	"script.js": "text/javascript; charset=utf-8",
	"icon.svg":  "image/svg+xml",
}

// static serves the style, the script and the icon: for ever under an address that names
// their content.
func (d *Dashboard) static(w http.ResponseWriter, r *http.Request) {
	name := path.Base(r.URL.Path)
	content, err := fs.ReadFile(staticFiles, "static/"+name)
	if err != nil {
		d.noPage(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == contentSum(content) {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	d.write(w, r, http.StatusOK, staticTypes[name], content)
}

func contentSum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:6])
}

// asset is the address of a file of the folder static.
func asset(name string) (string, error) {
	content, err := fs.ReadFile(staticFiles, "static/"+name)
	if err != nil {
		return "", err
	}
	return name + "?v=" + contentSum(content), nil
}

// parsePages reads the templates. What they are given is escaped by its place; text of the
// store goes through p besides.
func parsePages() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"asset": asset,
		"p":     printable,
	}).ParseFS(pageFiles, "pages/*.html"))
}

// isUnsupported says that a writer has no deadline.
func isUnsupported(err error) bool { return errors.Is(err, http.ErrNotSupported) }
