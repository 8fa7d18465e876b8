// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import "fmt"

// networkFS names the file systems that Open refuses, by the type that statfs
// gives on Linux (see statfs(2)). FUSE is not among them: many local file
// systems use it, and it does not say which it is.
var networkFS = map[uint32]string{
	0x00006969: "NFS",
	0x0000517b: "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x5346414f: "AFS",
	0x73757245: "Coda",
	0x01021997: "9P",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
}

func refuseNetworkFS(file string, kind uint32) error {
	name := networkFS[kind]
	if name == "" {
		return nil
	}
	return fmt.Errorf("sqlite file %q: it is on a network file system (%s), where SQLite's locks are not reliable;"+
		" put it on a local disk, or set AllowNetworkFS if one host alone uses it", file, name)
}
