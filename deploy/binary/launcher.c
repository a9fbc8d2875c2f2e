/*
 * The program `waterspout`: a Python interpreter, and behind it in the same file a ZIP archive with all that it runs.
 *
 * In: the command line. Out: `_boot.main()` of that archive, in this process, which systemd, signals and sockets are
 * meant for. It must not know: what is in the archive besides that module.
 *
 * The archive is read through /proc/self/exe, which stays the file that was started when another one takes its name.
 */

#define _GNU_SOURCE
#include <Python.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define ARCHIVE "/proc/self/exe"

/* load(path): a shared library that others will need, known from then on by its own name (dlopen(3)). */
static PyObject *load(PyObject *module, PyObject *path)
{
    const char *name = PyUnicode_AsUTF8(path);
    if (name == NULL)
        return NULL;
    if (dlopen(name, RTLD_NOW | RTLD_LOCAL) == NULL) {
        PyErr_SetString(PyExc_ImportError, dlerror());
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"load", load, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef launcher = {PyModuleDef_HEAD_INIT, "_launcher", NULL, 0, functions, NULL, NULL, NULL, NULL};

static PyObject *make_launcher(void)
{
    return PyModule_Create(&launcher);
}

static void check(PyStatus status)
{
    if (PyStatus_Exception(status))
        Py_ExitStatusException(status);
}

/* The name that this program was started by, made absolute, its links kept: whoever starts it by that name once more
   gets the version that lies there by then. */
static const char *own_path(void)
{
    static char path[2 * PATH_MAX];
    const char *name = (const char *) getauxval(AT_EXECFN);
    char folder[PATH_MAX];
    if (name[0] == '/' || getcwd(folder, sizeof folder) == NULL)
        return name;
    while (strncmp(name, "./", 2) == 0)
        name += 2;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void prepare(void)
{
    PyPreConfig config;
    PyPreConfig_InitIsolatedConfig(&config);
    config.utf8_mode = 1;
    check(Py_PreInitialize(&config));
    PyImport_AppendInittab("_launcher", make_launcher);
}

/* Nothing of the machine's own Python, nor its variables: what runs is what was built. */
static void start(int argc, char **argv)
{
    PyConfig config;
    const char *path = own_path();
    wchar_t *archive = Py_DecodeLocale(access(ARCHIVE, R_OK) == 0 ? ARCHIVE : path, NULL);
    PyConfig_InitIsolatedConfig(&config);
    config.install_signal_handlers = 1;
    config.parse_argv = 0;
    config.site_import = 0;
    config.write_bytecode = 0;
    config.module_search_paths_set = 1;
    check(PyConfig_SetBytesArgv(&config, argc, argv));
    check(PyConfig_SetBytesString(&config, &config.executable, path));
    check(PyConfig_SetString(&config, &config.prefix, L"/"));
    check(PyConfig_SetString(&config, &config.exec_prefix, L"/"));
    check(PyConfig_SetString(&config, &config.run_command, L"import _boot; _boot.main()"));
    check(archive == NULL ? PyStatus_NoMemory() : PyWideStringList_Append(&config.module_search_paths, archive));
    PyMem_RawFree(archive);
    check(Py_InitializeFromConfig(&config));
    PyConfig_Clear(&config);
}

int main(int argc, char **argv)
{
    prepare();
    start(argc, argv);
    return Py_RunMain();
}
