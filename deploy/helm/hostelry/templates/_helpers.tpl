{{- define "hostelry.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "hostelry.labels" -}}
app.kubernetes.io/name: hostelry
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "hostelry.selector" -}}
app.kubernetes.io/name: hostelry
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hostelry.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "hostelry.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "hostelry.imagePullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* Probes of Ray's containers: those that KubeRay adds ask with wget, which the image has not. */}}
{{- define "hostelry.rayProbe" -}}
exec:
  command:
    - python3
    - -c
    - |-
      import urllib.request
      urllib.request.urlopen("http://127.0.0.1:52365/api/local_raylet_healthz", timeout=4)
periodSeconds: 10
timeoutSeconds: 5
failureThreshold: 6
{{- end }}

{{- /* What starts Ray actors must be a node of the cluster; this one offers nothing. */}}
{{- define "hostelry.rayNode" -}}
- name: ray-node
  image: {{ include "hostelry.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [tini, --, ray, start]
  args:
    - --address={{ .Release.Name }}-ray-head-svc:6379
    - --num-cpus=0
    - --num-gpus=0
    - --object-store-memory=100000000
    - --block
  env:
    - {name: HOME, value: /tmp}
    - {name: RAY_USAGE_STATS_ENABLED, value: "0"}
  livenessProbe: {{- include "hostelry.rayProbe" . | nindent 4 }}
    initialDelaySeconds: 60
  resources:
    requests: {cpu: 100m, memory: 512Mi}
    limits: {memory: 1Gi}
  securityContext: {{- include "hostelry.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
    - {name: shm, mountPath: /dev/shm}
{{- end }}

{{- /* Of each control: the first, and those that join it. */}}
{{- define "hostelry.controlMounts" -}}
- {name: home, mountPath: /var/lib/hostelry}
- {name: tmp, mountPath: /tmp}
- {name: shm, mountPath: /dev/shm}
{{- if .Values.postgresql.hasCa }}
- {name: postgresql, mountPath: /run/secrets/postgresql, readOnly: true}
{{- end }}
{{- end }}

{{- define "hostelry.controlVolumes" -}}
volumes:
  - {name: tmp, emptyDir: {}}
  - {name: shm, emptyDir: {medium: Memory, sizeLimit: 512Mi}}
  {{- if .Values.postgresql.hasCa }}
  - name: postgresql
    secret:
      secretName: {{ .Values.postgresql.existingSecret }}
      items: [{key: ca.crt, path: ca.crt}]
  {{- end }}
{{- end }}

{{- define "hostelry.controlClaims" -}}
volumeClaimTemplates:
  - metadata: {name: home}
    spec:
      accessModes: [ReadWriteOnce]
      {{- with .Values.control.storage.className }}
      storageClassName: {{ . }}
      {{- end }}
      resources: {requests: {storage: {{ .Values.control.storage.size }}}}
{{- end }}

{{- /* Addresses of all controls, as controls.json has them: by name, since pods' addresses change. */}}
{{- define "hostelry.controls" -}}
{{- $found := list (printf "https://control@%s-control-0.%s-control:7443" .Release.Name .Release.Name) }}
{{- range $number := until (sub (int .Values.control.replicas) 1 | int) }}
{{- $found = append $found (printf "https://control@%s-standby-%d.%s-standby:7443" $.Release.Name $number $.Release.Name) }}
{{- end }}
{{- $found | toJson }}
{{- end }}
