package provider

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestRewriteFindsMountedPaths(t *testing.T) {
	container := &corev1.Container{VolumeMounts: []corev1.VolumeMount{
		{Name: "etc", MountPath: "/etc/fieldplane"},
		{Name: "tls", MountPath: "/etc/fieldplane/tls/"},
		{Name: "tmp", MountPath: "/tmp"},
		{Name: "one", MountPath: "/etc/one.conf", SubPath: "a/one.conf"},
		{Name: "own", MountPath: "/own", SubPathExpr: "$(POD)"},
	}}
	mounts := mountsOf(container, func(name string) string { return "/tmp/pods/" + name }, func(name string) (string, bool) { return "pod-1", name == "POD" })
	for name, test := range map[string]struct{ in, want string }{
		"a whole argument":                               {"/etc/fieldplane/config.json", "/tmp/pods/etc/config.json"},
		"a flag's value":                                 {"--config=/etc/fieldplane/config.json", "--config=/tmp/pods/etc/config.json"},
		"the mount itself":                               {"--dir=/etc/fieldplane", "--dir=/tmp/pods/etc"},
		"the innermost mount wins":                       {"--tls-dir=/etc/fieldplane/tls", "--tls-dir=/tmp/pods/tls"},
		"a longer name is another path":                  {"/etc/fieldplane2/x", "/etc/fieldplane2/x"},
		"the same path below another one is not mounted": {"/data/etc/fieldplane", "/data/etc/fieldplane"},
		"every element of a list":                        {"/etc/fieldplane/a:/etc/fieldplane/tls/b,/tmp/c", "/tmp/pods/etc/a:/tmp/pods/tls/b,/tmp/pods/tmp/c"},
		"a path is rewritten once":                       {"/tmp/x", "/tmp/pods/tmp/x"},
		"a file mounted by subPath":                      {"@/etc/one.conf", "@/tmp/pods/one/a/one.conf"},
		"a directory mounted by subPathExpr":             {"/own/x", "/tmp/pods/own/pod-1/x"},
		"a quoted path":                                  {`{"path":"/etc/fieldplane/x"}`, `{"path":"/tmp/pods/etc/x"}`},
		"a URL's path is not a file":                     {"http://host/etc/fieldplane", "http://host/etc/fieldplane"},
		"text without a path":                            {"--v=2", "--v=2"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rewrite(test.in, mounts); got != test.want {
				t.Errorf("rewrite(%q) = %q, want %q", test.in, got, test.want)
			}
		})
	}
}

func TestImageProgramIsTheBaseNameWithoutTagAndDigest(t *testing.T) {
	for image, want := range map[string]string{
		"io-probe":        "io-probe",
		"io-probe:v0.1.0": "io-probe",
		"registry.example:5000/fieldplane/io-probe":     "io-probe",
		"registry.example:5000/a/io-probe:v1@sha256:ab": "io-probe",
	} {
		if got := imageProgram(image); got != want {
			t.Errorf("imageProgram(%q) = %q, want %q", image, got, want)
		}
	}
}
