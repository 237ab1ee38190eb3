package probe

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
)

// maxCredential bounds one file: a Secret holds 1 MiB.
const maxCredential = 1 << 20

// ApplicationKey is the key of the PEM certificate and RSA key by which OPC UA servers know this probe. Without it a probe
// makes its own, with every start, and servers that trust only whom they know must be told anew.
const ApplicationKey = "opcua-application.pem"

// credentialKey is what a key of a Secret may be, and thus a name without a way out of the directory.
var credentialKey = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,252}$`)

// CredentialFiles reads credentials of devices from a directory that a Secret is mounted at: one file a key. Nothing is
// kept, so that what changes there is used by the next connection, and what is taken away is not.
type CredentialFiles string

// Read returns what the file of the key holds now.
func (dir CredentialFiles) Read(key string) ([]byte, error) {
	if dir == "" {
		return nil, fmt.Errorf("this probe was given no directory of credentials: %w", fs.ErrNotExist)
	}
	if !credentialKey.MatchString(key) {
		return nil, fmt.Errorf("%q cannot be the key of a Secret", key)
	}
	// A link out of the directory is not followed either; the kubelet's own stay within it.
	root, err := os.OpenRoot(string(dir))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(key)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q is no file", key)
	}
	file, err := root.Open(key)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxCredential+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxCredential {
		return nil, fmt.Errorf("%q is larger than %d bytes", key, maxCredential)
	}
	return data, nil
}
