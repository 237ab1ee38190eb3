#!/usr/bin/env bash
# Generates everything that is derived from the types in apis/: protobuf,
# deepcopy, defaults, conversion, declarative validation, OpenAPI, and the
# typed clients. Needs protoc (Debian: protobuf-compiler).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$root"
module=github.com/fieldplane/fieldplane
tools=$root/_local/tools
boilerplate=$root/hack/boilerplate.go.txt
internal=(./apis/physical ./apis/talos)
versioned=(./apis/physical/v1alpha1 ./apis/talos/v1alpha1)
types=(k8s.io/apimachinery/pkg/api/resource k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/types
	k8s.io/apimachinery/pkg/util/intstr k8s.io/apimachinery/pkg/version time)

command -v protoc >/dev/null || {
	echo "update-codegen: protoc is missing; install Debian's protobuf-compiler or protoc 3.21 or newer" >&2
	exit 1
}
mkdir -p "$tools"
(cd hack/tools && go build -o "$tools/" tool)
export PATH=$tools:$PATH

# Generators leave files of removed kinds behind.
rm -rf generated/clientset generated/listers generated/informers generated/applyconfiguration
find apis -name 'zz_generated.*' -delete

echo "protobuf"
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/$(dirname "$module")" "$tree/k8s.io" "$tree/github.com/gogo"
ln -s "$root" "$tree/$module"
ln -s "$(go list -m -f '{{.Dir}}' k8s.io/apimachinery)" "$tree/k8s.io/apimachinery"
ln -s "$(cd hack/tools && go list -m -f '{{.Dir}}' github.com/gogo/protobuf)" "$tree/github.com/gogo/protobuf"
go-to-protobuf \
	--go-header-file "$boilerplate" \
	--output-dir "$tree" \
	--proto-import "$tree" \
	--packages "$module/apis/physical/v1alpha1,$module/apis/talos/v1alpha1" \
	--apimachinery-packages "-k8s.io/apimachinery/pkg/util/intstr,-k8s.io/apimachinery/pkg/api/resource,-k8s.io/apimachinery/pkg/runtime/schema,-k8s.io/apimachinery/pkg/runtime,-k8s.io/apimachinery/pkg/apis/meta/v1"

echo "deepcopy"
deepcopy-gen --go-header-file "$boilerplate" --output-file zz_generated.deepcopy.go "${internal[@]}" "${versioned[@]}"
echo "defaults"
defaulter-gen --go-header-file "$boilerplate" --output-file zz_generated.defaults.go "${versioned[@]}"
echo "conversion"
conversion-gen --go-header-file "$boilerplate" --output-file zz_generated.conversion.go "${versioned[@]}"
echo "validation"
# The validations of metav1.Condition stand in a package of their own, which
# validation-gen finds only when it may write to it: give it a copy.
cp -r "$(go list -m -f '{{.Dir}}' k8s.io/apimachinery)" "$tree/apimachinery"
chmod -R u+w "$tree/apimachinery"
printf 'go %s\nuse %s\nreplace k8s.io/apimachinery => %s\n' \
	"$(go list -m -f '{{.GoVersion}}')" "$root" "$tree/apimachinery" >"$tree/go.work"
GOWORK="$tree/go.work" validation-gen --go-header-file "$boilerplate" --output-file zz_generated.validations.go --lint-rules=known-tags-only \
	$(printf -- '--readonly-pkg %s ' "${types[@]}") \
	k8s.io/apimachinery/pkg/apis/meta/v1/validation "${versioned[@]}"

echo "openapi"
mkdir -p generated/openapi
openapi-gen --go-header-file "$boilerplate" \
	--output-dir generated/openapi --output-pkg "$module/generated/openapi" \
	--output-file zz_generated.openapi.go --output-model-name-file zz_generated.model_name.go \
	--report-filename generated/openapi/violations.list \
	$(printf -- '--readonly-pkg %s ' "${types[@]}" k8s.io/apimachinery/pkg/apis/meta/v1) \
	"${versioned[@]}" \
	k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/version \
	k8s.io/apimachinery/pkg/api/resource k8s.io/apimachinery/pkg/util/intstr
go run ./hack/openapi-schema >generated/openapi/schema.json

echo "clients"
applyconfiguration-gen --go-header-file "$boilerplate" \
	--output-dir generated/applyconfiguration --output-pkg "$module/generated/applyconfiguration" \
	--openapi-schema generated/openapi/schema.json "${versioned[@]}"
client-gen --go-header-file "$boilerplate" --clientset-name versioned --input-base "$module/apis" \
	--input physical/v1alpha1 --input talos/v1alpha1 \
	--output-dir generated/clientset --output-pkg "$module/generated/clientset" \
	--apply-configuration-package "$module/generated/applyconfiguration" --prefers-protobuf
lister-gen --go-header-file "$boilerplate" \
	--output-dir generated/listers --output-pkg "$module/generated/listers" "${versioned[@]}"
informer-gen --go-header-file "$boilerplate" \
	--output-dir generated/informers --output-pkg "$module/generated/informers" \
	--versioned-clientset-package "$module/generated/clientset/versioned" \
	--listers-package "$module/generated/listers" --single-directory "${versioned[@]}"
gofmt -w generated apis
