package rbac

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fieldplane/fieldplane/test/deploy"
	"github.com/fieldplane/fieldplane/test/installation"
)

// account is the server's name towards the kube-apiserver.
const account = "system:serviceaccount:" + installation.Namespace + ":" + installation.ServiceAccount

// auditPolicy has the kube-apiserver write down everything that the server asks
// of it, and what it decided. Requests that last, as watches do, are written
// when they begin.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["` + account + `"]
- level: None
`

// request is one line of the audit log.
type request struct {
	Verb      string `json:"verb"`
	URI       string `json:"requestURI"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Annotations map[string]string `json:"annotations"`
}

func (r request) forbidden() bool {
	return r.Annotations["authorization.k8s.io/decision"] == "forbid"
}

func (r request) String() string { return r.Verb + " " + r.URI }

// coveredBy tells whether the rule allows this request, in its namespace if it
// has one.
func (r request) coveredBy(rule rbacv1.PolicyRule, namespace string) bool {
	resource := r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		resource += "/" + r.ObjectRef.Subresource
	}
	return resource != "" && deploy.Grants(rule, r.ObjectRef.APIGroup, resource, r.Verb) &&
		(namespace == "" || namespace == r.ObjectRef.Namespace) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.ObjectRef.Name))
}

// auditLog is read while the kube-apiserver writes it.
type auditLog struct {
	policy, file string
}

func newAuditLog(t *testing.T) *auditLog {
	t.Helper()
	dir := t.TempDir()
	a := &auditLog{policy: filepath.Join(dir, "policy.yaml"), file: filepath.Join(dir, "audit.log")}
	if err := os.WriteFile(a.policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// args are the kube-apiserver's flags. It writes before it answers, so that the
// log is never behind what the server saw.
func (a *auditLog) args() []string {
	return []string{"--audit-policy-file=" + a.policy, "--audit-log-path=" + a.file, "--audit-log-mode=blocking"}
}

// end is the place in the log at which later requests begin.
func (a *auditLog) end(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(a.file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// since returns the requests that were written after this place.
func (a *auditLog) since(t *testing.T, place int64) []request {
	t.Helper()
	file, err := os.Open(a.file)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Seek(place, 0); err != nil {
		t.Fatal(err)
	}
	var requests []request
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var r request
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil {
			// The last line may be half written.
			break
		}
		requests = append(requests, r)
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(fmt.Errorf("audit log: %w", err))
	}
	return requests
}
