"""The serializers. A relationship is only in the serializers that are named for it. The views use them if it is
included or written, so that no other linkage is read."""

# The library declares with lists and dictionaries of classes.
# ruff: noqa: RUF012

from rest_framework_json_api import serializers

from people.models import Computer, Group, User

USER = (
    "first_name",
    "last_name",
    "display_name",
    "age",
    "email",
    "status",
    "birth_date",
    "gender",
    "words",
    "date_create",
)
COMPUTER = ("name", "serial")


class GroupSerializer(serializers.ModelSerializer):
    class Meta:
        model = Group
        fields = ("name",)


class ComputerSerializer(serializers.ModelSerializer):
    class Meta:
        model = Computer
        fields = COMPUTER


class UserSerializer(serializers.ModelSerializer):
    class Meta:
        model = User
        fields = USER


class UserWithGroup(UserSerializer):
    included_serializers = {"group": GroupSerializer}

    class Meta(UserSerializer.Meta):
        fields = (*USER, "group")


class UserWithComputers(UserSerializer):
    included_serializers = {"computers": ComputerSerializer}

    class Meta(UserSerializer.Meta):
        fields = (*USER, "computers")


class UserWithBoth(UserSerializer):
    included_serializers = {"computers": ComputerSerializer, "group": GroupSerializer}

    class Meta(UserSerializer.Meta):
        fields = (*USER, "computers", "group")


class GroupWithUsers(GroupSerializer):
    included_serializers = {"users": UserSerializer}

    class Meta(GroupSerializer.Meta):
        fields = ("name", "users")


class ComputerWithOwner(ComputerSerializer):
    included_serializers = {"owner": UserSerializer}

    class Meta(ComputerSerializer.Meta):
        fields = (*COMPUTER, "owner")


class ComputerWithOwnerAndGroup(ComputerWithOwner):
    included_serializers = {"owner": UserWithGroup}
